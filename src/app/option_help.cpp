// Help texts, made of the option table.

#include <fmt/format.h>

#include "caravan/app/option_parser.h"

namespace caravan::app {
namespace {

std::string wrap(const std::string& text, std::size_t indent, std::size_t width) {
  std::string out;
  std::size_t column = indent;
  std::size_t begin = 0;
  while (begin < text.size()) {
    auto end = text.find(' ', begin);
    if (end == std::string::npos) end = text.size();
    if (column > indent && column + 1 + (end - begin) > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out.append(text, begin, end - begin);
    column += end - begin;
    begin = end + 1;
  }
  return out;
}

std::string usage_line(Command command) {
  switch (command) {
    case Command::kConvert:
      return "caravan convert SOURCE MODEL.h5 [options]\n\n"
             "Converts a checkpoint (a Hugging Face, Meta or torchtune folder, or a GGUF file) to "
             "one HDF5 file that "
             "serves\nany number of ranks. The file appears under its name only when it is "
             "complete "
             "and verified.\n";
    case Command::kInspect:
      return "caravan inspect MODEL.h5 [options]\n\nShows what is in a checkpoint.\n";
    case Command::kVerify:
      return "caravan verify MODEL.h5 [options]\n\n"
             "Reads everything in a checkpoint and checks every checksum.\n";
    case Command::kPlan:
      return "caravan plan [options of run] [--ranks N]\n\n"
             "Checks model, input and output as a run would, and prints memory and work of each "
             "rank.\nStarts no MPI: runs on a login node.\n";
    case Command::kRun:
      return "caravan run --model MODEL.h5 --input PROMPTS --output ANSWERS.jsonl [options]\n"
             "       caravan run --model MODEL.h5 --prompt TEXT [options]\n\n"
             "Answers a file of prompts, on all ranks that srun or mpirun started. The same "
             "command "
             "continues\na run that was interrupted.\n";
    case Command::kBench:
      return "caravan bench --model MODEL.h5 [options]\n\n"
             "Measures loading, prompts and decoding on all ranks that srun or mpirun started, "
             "beside what\nthis machine gives at most. Takes no prompts and writes nothing but "
             "the result.\n";
    case Command::kTokenize:
      return "caravan tokenize --model MODEL.h5 [TEXT] [options]\n\n"
             "Shows the token ids that the model sees for a text (the argument, --input FILE, or "
             "standard\ninput), or with --ids the text of token ids.\n";
  }
  return {};
}

std::string option_help(const Option& option) {
  constexpr std::size_t kIndent = 30;
  constexpr std::size_t kWidth = 100;
  std::string left = "  --" + option.name;
  if (!option.value_name.empty()) left += " " + option.value_name;
  const auto defaults = option.get(JobOptions{});
  std::string text = option.help;
  if (option.kind == OptionKind::kValue && !defaults.empty()) {
    text += fmt::format("{}[{}]", text.empty() ? "" : " ", defaults.front());
  }
  const std::string gap = left.size() + 2 > kIndent ? "\n" + std::string(kIndent, ' ')
                                                    : std::string(kIndent - left.size(), ' ');
  return left + gap + wrap(text, kIndent, kWidth) + "\n";
}

}  // namespace

std::string command_help(Command command) {
  std::string out = "Usage: " + usage_line(command);
  std::string group;
  for (const Option& option : option_table()) {
    if (!option.applies_to(command)) continue;
    if (option.group != group) {
      group = option.group;
      out += fmt::format("\n{}:\n", group);
    }
    out += option_help(option);
  }
  if (command == Command::kRun || command == Command::kPlan) {
    out +=
        "\nOptions are also read from CARAVAN_<NAME> variables and from --config; the command line "
        "wins,\nthen the environment, then the file.\n";
  }
  return out;
}

std::string general_help() {
  return "Usage: caravan SUBCOMMAND ...\n\n"
         "  convert SOURCE MODEL.h5   Hugging Face, Meta or torchtune folder or GGUF file to "
         "one HDF5 file\n"
         "  inspect MODEL.h5          what is in it\n"
         "  verify MODEL.h5           reads everything, checks every checksum\n"
         "  plan                      checks a run before it is queued: input, memory, ranks\n"
         "  run                       answers prompts; start it with srun or mpirun\n"
         "  bench                     speed of a model on these ranks; start it like run\n"
         "  tokenize                  text or chat to token ids, and back\n"
         "  help SUBCOMMAND           its options\n"
         "  --version                 version and libraries\n";
}

}  // namespace caravan::app
