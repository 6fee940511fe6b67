#include "caravan/app/option_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "caravan/app/prepared_run.h"
#include "caravan/core/error.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace caravan::app {
namespace {

using test::expect_error;
using test::TemporaryFolder;
using Variables = std::map<std::string, std::string>;

JobOptions parse(const std::vector<std::string>& arguments, const Variables& variables = {},
                 Command command = Command::kRun) {
  const Environment environment =
      [&variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  std::vector<std::string> names;
  for (const auto& [name, value] : variables) names.push_back(name);
  return parse_options(command, arguments, environment, names).options;
}

TEST(OptionParser, ReadsEveryKindOfValue) {
  const JobOptions job =
      parse({"--model",     "m.h5",          "--input=a", "--input",      "b",
             "--overwrite", "--temperature", "0.5",       "--max-tokens", "7",
             "--kv-memory", "1.5G",          "--isa",     "avx2",         "--chat-format",
             "llama3.1",    "--on-invalid",  "record",    "--seed",       "18446744073709551615",
             "--log-level", "debug",         "--device",  "cuda"});
  EXPECT_EQ(job.model, "m.h5");
  EXPECT_EQ(job.inputs, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(job.overwrite);
  EXPECT_EQ(job.temperature, 0.5);
  EXPECT_EQ(job.max_tokens, 7);
  EXPECT_EQ(job.kv_memory, std::int64_t{3} << 29);
  EXPECT_EQ(job.isa, ops::Isa::kAvx2);
  EXPECT_EQ(job.device, DeviceKind::kCuda);
  EXPECT_EQ(job.chat_format, text::ChatFormatKind::kLlama31);
  EXPECT_EQ(job.on_invalid, OnInvalid::kRecord);
  EXPECT_EQ(job.seed, ~std::uint64_t{0});
  EXPECT_EQ(job.log_level, log::Level::kDebug);
}

TEST(OptionParser, FlagsMayBeTurnedOff) {
  EXPECT_FALSE(parse({"--overwrite=false"}).overwrite);
  EXPECT_FALSE(parse({"--overwrite=off"}, {{"CARAVAN_OVERWRITE", "true"}}).overwrite);
  EXPECT_TRUE(parse({}, {{"CARAVAN_OVERWRITE", "1"}}).overwrite);
  const ParsedOptions parsed = parse_options(Command::kTokenize, {"--ids", "5", "--", "--ids"},
                                             [](const std::string&) { return std::nullopt; });
  EXPECT_TRUE(parsed.options.ids);
  EXPECT_EQ(parsed.positional, (std::vector<std::string>{"5", "--ids"}));
}

TEST(OptionParser, CommandLineBeforeEnvironmentBeforeFileBeforeDefault) {
  const TemporaryFolder folder;
  const std::string config = folder.write(
      "a.ini",
      "# comment\nmax-tokens = 1\ntemperature = 0.1\nmax-sequences = 3\ninput = x\ninput = y\n");
  const Variables variables = {{"CARAVAN_MAX_TOKENS", "2"}, {"CARAVAN_TEMPERATURE", "0.2"}};
  const JobOptions job = parse({"--config", config, "--max-tokens", "3"}, variables);
  EXPECT_EQ(job.max_tokens, 3);
  EXPECT_EQ(job.temperature, 0.2);
  EXPECT_EQ(job.max_sequences, 3);
  EXPECT_EQ(job.max_step_tokens, JobOptions{}.max_step_tokens);
  EXPECT_EQ(job.inputs, (std::vector<std::string>{"x", "y"}));
  // A list is taken from one place as a whole.
  EXPECT_EQ(parse({"--config", config, "--input", "z"}).inputs, (std::vector<std::string>{"z"}));
}

TEST(OptionParser, FaultsNameOptionPlaceAndValue) {
  const TemporaryFolder folder;
  const auto config = [&](const std::string& text) { return folder.write("a.ini", text); };
  expect_error<UsageError>([] { parse({"--temprature", "1"}); }, "did you mean --temperature?");
  expect_error<UsageError>([] { parse({"--zzzzzz"}); },
                           "unknown option --zzzzzz (`caravan help run`");
  expect_error<UsageError>(
      [] {
        parse({"--max-tokens", "many"});
      },
      "--max-tokens: expected an integer between 0");
  expect_error<UsageError>([] { parse({"--max-tokens", "-1"}); }, "found \"-1\"");
  expect_error<UsageError>([] { parse({"--max-tokens", "1e3"}); }, "found \"1e3\"");
  expect_error<UsageError>([] { parse({"--top-p", "nan"}); }, "--top-p");
  expect_error<UsageError>([] { parse({"--max-tokens"}); }, "--max-tokens");
  expect_error<UsageError>([] { parse({"--max-tokens", "1", "--max-tokens", "2"}); }, "2 times");
  expect_error<UsageError>([] { parse({"--kv-memory", "8Q"}); }, "expected bytes");
  expect_error<UsageError>([] { parse({"--isa", "sse"}); }, "auto, amx, avx2, avx512, generic");
  expect_error<UsageError>([] { parse({"--overwrite=maybe"}); }, "true or false");
  expect_error<UsageError>(
      [] {
        parse({}, {{"CARAVAN_MAX_TOKENS", "x"}});
      },
      "CARAVAN_MAX_TOKENS: ");
  expect_error<UsageError>(
      [&] {
        parse({"--config", config("max_tokens = 1\n")});
      },
      "did you mean max-tokens?");
  expect_error<UsageError>(
      [&] {
        parse({"--config", config("max-tokens = x\n")});
      },
      "a.ini: max-tokens: expected an integer");
  expect_error<UsageError>([&] { parse({"--config", config("nonsense\n")}); }, "a.ini");
  expect_error<UsageError>(
      [&] {
        parse({"--config", config("config = b.ini\n")});
      },
      "unknown option");
  expect_error<MissingInputError>(
      [&] {
        parse({"--config", folder.file("none.ini")});
      },
      "none.ini");
  expect_error<UsageError>([] { parse({"--tensors"}); },
                           "--tensors is not an option of run, but of inspect");
}

TEST(OptionParser, VariablesThatNobodyKnowsAreFaults) {
  const auto expect_fault = [](const std::string& name, const std::string& words) {
    expect_error<UsageError>([&] { parse({}, {{name, "1"}}); }, name);
    expect_error<UsageError>([&] { parse({}, {{name, "1"}}); }, words);
  };
  expect_fault("CARAVAN_MAX_TOKEN", "did you mean CARAVAN_MAX_TOKENS?");
  expect_fault("CARAVAN_CONFIG", "--config can be given on the command line only");
  expect_fault("CARAVAN_", "is not an option");
  parse({},
        {{"CARAVAN_MODELS_DIR", "/m"}, {"CARAVAN_ROOT", "/c"}, {"CARAVANS", "x"}, {"HOME", "/"}});
  // Variables for runs may be set where something else is done.
  parse({}, {{"CARAVAN_MAX_TOKENS", "1"}}, Command::kConvert);
}

TEST(OptionParser, ConfigFilesOfEveryEditorAreRead) {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& text) {
    return parse({"--config", folder.write("a.ini", text)});
  };
  EXPECT_EQ(read("\xef\xbb\xbfmax-tokens = 3\n").max_tokens, 3);
  const JobOptions windows = read("max-tokens = 3\r\nsystem = Be brief\r\n\r\n# end\r\n");
  EXPECT_EQ(windows.max_tokens, 3);
  EXPECT_EQ(windows.system, "Be brief");
  EXPECT_EQ(read("system = \"two\\nlines \\u0023 1\"\n").system, "two\nlines # 1");
  EXPECT_EQ(read("system = it's \"so\"\n").system, "it's \"so\"");
  EXPECT_EQ(read("max-tokens = 3").max_tokens, 3) << "no line end";
  expect_error<UsageError>([&] { read("system = \"a # b\"\n"); }, "\\u0023");
  expect_error<MissingInputError>([&] { parse({"--config", folder.path()}); }, "folder");
}

TEST(OptionParser, NoTwoListsLookAlike) {
  EXPECT_NE(list_text({"a|b", "c"}), list_text({"a", "b|c"}));
  EXPECT_NE(list_text({"a\",\"b"}), list_text({"a", "b"}));
  const auto shown = effective_options(Command::kRun, parse({"--input", "a, b", "--input", "c"}));
  EXPECT_NE(std::find(shown.begin(), shown.end(),
                      std::pair<std::string, std::string>("input", R"(["a, b","c"])")),
            shown.end());
}

TEST(OptionParser, EveryChatFormatCanBeNamed) {
  for (const char* name : {"none", "llama2", "llama3", "llama3.1", "chatml", "zephyr"}) {
    EXPECT_EQ(parse({"--chat-format", name}).chat_format, text::parse_chat_format(name)) << name;
  }
  EXPECT_NE(command_help(Command::kRun).find("|llama2|"), std::string::npos);
}

TEST(OptionParser, PrintedConfigReadsBackTheSame) {
  JobOptions job = parse({"--model",
                          "a b.h5",
                          "--input",
                          "x#1.jsonl",
                          "--input",
                          "y",
                          "--stop",
                          "\n\n",
                          "--stop",
                          " # ",
                          "--stop",
                          "\"",
                          "--system",
                          "  two\tlines\\ \xc3\xa9",
                          "--temperature",
                          "0.1",
                          "--kv-memory",
                          "1G",
                          "--threads",
                          "3",
                          "--seed",
                          "9",
                          "--strict-fields",
                          "--isa",
                          "generic",
                          "--log-interval",
                          "2.5"});
  const TemporaryFolder folder;
  const std::string text = print_config(Command::kRun, job);
  const JobOptions again = parse({"--config", folder.write("a.ini", text)});
  EXPECT_EQ(print_config(Command::kRun, again), text);
  EXPECT_EQ(again.stop, job.stop);
  EXPECT_EQ(again.system, job.system);
  EXPECT_EQ(again.inputs, job.inputs);
  EXPECT_EQ(again.model, job.model);
  EXPECT_EQ(again.kv_memory, job.kv_memory);
  EXPECT_EQ(effective_options(Command::kRun, again), effective_options(Command::kRun, job));
  EXPECT_FALSE(again.max_tokens.has_value());
}

TEST(OptionParser, PlanTakesTheFileOfARun) {
  const TemporaryFolder folder;
  const std::string config = folder.write("a.ini", "prompt = Hi\nmax-tokens = 4\n");
  const JobOptions job = parse({"--config", config, "--ranks", "3"}, {}, Command::kPlan);
  EXPECT_EQ(job.max_tokens, 4);
  EXPECT_EQ(job.ranks, 3);
  EXPECT_FALSE(job.prompt.has_value());
}

TEST(OptionTable, EntriesAreConsistent) {
  std::set<std::string> names;
  for (const Option& option : option_table()) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    EXPECT_FALSE(option.commands.empty()) << option.name;
    EXPECT_FALSE(option.group.empty()) << option.name;
    // What `get` gives for the default can be set again and changes nothing.
    JobOptions job;
    const auto values = option.get(job);
    if (option.kind == OptionKind::kList) continue;
    for (const std::string& value : values) option.set(job, value);
    EXPECT_EQ(option.get(job), values) << option.name;
  }
  for (const Command command : kAllCommands) {
    const std::string help = command_help(command);
    for (const Option& option : option_table()) {
      const bool shown = help.find("  --" + option.name) != std::string::npos;
      if (option.applies_to(command)) {
        EXPECT_TRUE(shown) << option.name;
      }
    }
    EXPECT_NE(general_help().find(command_name(command)), std::string::npos);
  }
}

TEST(OptionTable, ANumberMayBeOff) {
  const auto shown = [](const JobOptions& job) {
    for (const auto& [name, value] : effective_options(Command::kRun, job)) {
      if (name == "speculation") return value;
    }
    return std::string("not there");
  };
  EXPECT_EQ(parse({}).speculation, std::nullopt);
  EXPECT_EQ(shown(parse({"--speculation", "auto"})), "auto");
  EXPECT_EQ(parse({"--speculation", "off"}).speculation, 0);
  EXPECT_EQ(shown(parse({"--speculation", "off"})), "off");
  EXPECT_EQ(parse({"--speculation", "12"}).speculation, 12);
  EXPECT_EQ(shown(parse({"--speculation", "12"})), "12");
  expect_error<UsageError>([] { parse({"--speculation", "65"}); }, "between 0 and 64");
  expect_error<UsageError>([] { parse({"--prefix-sharing", "maybe"}); }, "on, off");
}

TEST(NearestName, SuggestsOnlyWhatIsNear) {
  const std::vector<std::string> names = {"max-tokens", "max-sequences", "model", "seed"};
  EXPECT_EQ(nearest_name("max-token", names), "max-tokens");
  EXPECT_EQ(nearest_name("max_tokens", names), "max-tokens");
  EXPECT_EQ(nearest_name("sead", names), "seed");
  EXPECT_EQ(nearest_name("completely-else", names), "");
}

TEST(CheckOptions, ContradictionsAreListedTogether) {
  JobOptions job;
  job.prompt = "Hi";
  job.output = "-";
  job.max_sequences = 100;
  job.max_step_tokens = 10;
  for (const char* words :
       {"--model", "excludes --input and --output", "--output -", "--max-step-tokens"}) {
    expect_error<UsageError>([&] { check_options(Command::kRun, job); }, words);
  }
}

}  // namespace
}  // namespace caravan::app
