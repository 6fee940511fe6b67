#include "caravan/app/option_table.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "caravan/core/error.h"
#include "option_types.h"

namespace caravan::app {
namespace {

constexpr std::int64_t kManyTokens = std::numeric_limits<std::int32_t>::max();

Names<log::Level> log_levels() {
  return {{"debug", log::Level::kDebug},
          {"info", log::Level::kInfo},
          {"warning", log::Level::kWarning},
          {"error", log::Level::kError}};
}

Names<std::optional<ops::Isa>> instruction_sets() {
  Names<std::optional<ops::Isa>> names = {{"auto", std::nullopt}};
  for (const auto isa : {ops::Isa::kAmx, ops::Isa::kAvx2, ops::Isa::kAvx512, ops::Isa::kGeneric}) {
    names.emplace_back(ops::isa_name(isa), isa);
  }
  return names;
}

Names<std::optional<text::ChatFormatKind>> chat_formats() {
  Names<std::optional<text::ChatFormatKind>> names = {{"auto", std::nullopt}};
  for (const auto kind : text::chat_format_kinds()) {
    names.emplace_back(text::chat_format_name(kind), kind);
  }
  return names;
}

Names<std::optional<DType>> dtypes() {
  Names<std::optional<DType>> names = {{"auto", std::nullopt}};
  for (const auto dtype :
       {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kInt8, DType::kInt4}) {
    names.emplace_back(dtype_name(dtype), dtype);
  }
  return names;
}

// Adds entries that share a group and subcommands.
class Table {
 public:
  void group(std::string name, std::vector<Command> commands) {
    group_ = std::move(name);
    commands_ = std::move(commands);
  }
  Option& add(Option option) {
    option.group = group_;
    option.commands = commands_;
    return options.emplace_back(std::move(option));
  }
  std::vector<Option> options;

 private:
  std::string group_;
  std::vector<Command> commands_;
};

constexpr auto kRun = Command::kRun;
constexpr auto kPlan = Command::kPlan;
constexpr auto kBench = Command::kBench;
constexpr auto kTokenize = Command::kTokenize;
constexpr auto kConvert = Command::kConvert;
constexpr auto kInspect = Command::kInspect;

void add_input_output(Table& table) {
  table.group("Input and output", {kRun, kPlan});
  table
      .add(text_option({"model", "MODEL.h5",
                        "the checkpoint, made by `caravan convert`. plan: also a config.json or "
                        "params.json, before there are weights"},
                       &JobOptions::model))
      .commands = {kRun, kPlan, kBench, kTokenize};
  table
      .add(
          list_option({"input", "PATH",
                       "prompts: .jsonl (OpenAI batch requests), .txt, .yaml, a folder of them, or "
                       "- for standard input; may be repeated"},
                      &JobOptions::inputs))
      .commands = {kRun, kPlan, kTokenize};
  table.add(choice_option<batch::InputFormat>(
      {"input-format", "auto|jsonl|txt|yaml",
       "what standard input and files with other endings hold; auto: judged by the first line of "
       "standard input"},
      &JobOptions::input_format,
      {{"auto", batch::InputFormat::kAuto},
       {"jsonl", batch::InputFormat::kJsonl},
       {"txt", batch::InputFormat::kText},
       {"yaml", batch::InputFormat::kYaml}}));
  table.add(text_option({"output", "FILE", "answers, one JSON line for each record in input order"},
                        &JobOptions::output));
  table
      .add(text_option({"prompt", "TEXT", "one prompt, answered on standard output"},
                       &JobOptions::prompt))
      .commands = {kRun};
  table
      .add(list_option({"image", "FILE", "shown before the prompt; may be repeated"},
                       &JobOptions::images))
      .commands = {kRun, kTokenize};
  table.add(text_option({"media-root", "FOLDER",
                         "where images of prompts are; nothing outside of it is read (default: the "
                         "folder of each input file)"},
                        &JobOptions::media_root));
  table.add(number_option<std::int64_t>(
      {"max-image-pixels", "N", "an image with more is a fault of its record"},
      &JobOptions::max_image_pixels, {1, std::int64_t{1} << 32}));
  table.add(choice_option<image::Alpha>(
      {"image-alpha", "drop|white",
       "transparent pixels keep their stored colour, or lie over white"},
      &JobOptions::image_alpha, {{"drop", image::Alpha::kDrop}, {"white", image::Alpha::kWhite}}));
  table.add(bytes_option(
      {"max-image-bytes", "BYTES", "likewise of its file (8M), or of its data: URI when decoded"},
      &JobOptions::max_image_bytes));
  table.add(number_option<std::int64_t>({"max-images", "N",
                                         "a record with more images is faulty; the largest one's "
                                         "are all held by the first rank while it runs"},
                                        &JobOptions::max_images, {1, 1 << 20}));
  table
      .add(text_option({"system", "TEXT", "system message of --prompt, .txt and .yaml prompts"},
                       &JobOptions::system))
      .commands = {kRun, kPlan, kTokenize};
  table.add(choice_option<OnInvalid>(
      {"on-invalid", "fail|record",
       "faulty records: end before any work with every fault listed, or answer each with an error "
       "line"},
      &JobOptions::on_invalid, {{"fail", OnInvalid::kFail}, {"record", OnInvalid::kRecord}}));
  table.add(flag_option({"overwrite", "", "replace an existing output"}, &JobOptions::overwrite))
      .commands = {kRun, kPlan, kConvert};
  table.add(flag_option({"text-per-file", "", "a .txt file is one prompt instead of one a line"},
                        &JobOptions::text_per_file));
  table.add(choice_option<TextEndpoint>(
      {"endpoint", "auto|chat|completion",
       "what .txt, .yaml and --prompt texts are; auto: chat where the model has a chat format"},
      &JobOptions::endpoint,
      {{"auto", TextEndpoint::kAuto},
       {"chat", TextEndpoint::kChat},
       {"completion", TextEndpoint::kCompletion}}));
  table.add(text_option({"model-name", "NAME",
                         "name in answers; requests that ask for another model get error 404 "
                         "(default: the checkpoint's name, any request accepted)"},
                        &JobOptions::model_name));
  table.add(flag_option({"strict-fields", "", "unknown request fields are faults, not warnings"},
                        &JobOptions::strict_fields));
  table.add(flag_option({"fail-on-error", "", "exit with 3 if any record got an error line"},
                        &JobOptions::fail_on_error));
}

void add_record_defaults(Table& table) {
  table.group("Defaults of records (a record's own field wins; then these, then the checkpoint's)",
              {kRun, kPlan});
  table.add(number_option<std::int64_t>({"max-tokens", "N",
                                         "new tokens for each choice (default: up to the context's "
                                         "end for chat, 16 for completions)"},
                                        &JobOptions::max_tokens, {0, kManyTokens}));
  table.add(
      number_option<double>({"temperature", "X", "0 is greedy (default: the checkpoint's, or 1)"},
                            &JobOptions::temperature, {0, 100}));
  table.add(number_option<double>({"top-p", "X", "(default: the checkpoint's, or 1: off)"},
                                  &JobOptions::top_p, {1e-9, 1}));
  table.add(number_option<std::int64_t>({"top-k", "N", "(default: the checkpoint's, or 0: off)"},
                                        &JobOptions::top_k, {0, kManyTokens}));
  table.add(number_option<double>({"min-p", "X", "(default: 0: off)"}, &JobOptions::min_p, {0, 1}));
  table.add(number_option<std::uint64_t>(
      {"seed", "N", "mixed with a record's custom_id for records without a seed"},
      &JobOptions::seed, {0, std::numeric_limits<std::uint64_t>::max()}));
  table.add(list_option({"stop", "TEXT", "ends an answer; may be repeated"}, &JobOptions::stop));
  table
      .add(choice_option<std::optional<text::ChatFormatKind>>(
          {"chat-format", "auto|" + text::chat_format_names(),
           "layout of chats; auto: the checkpoint's"},
          &JobOptions::chat_format, chat_formats()))
      .commands = {kRun, kPlan, kTokenize, kConvert};
  table
      .add(text_option({"date", "TEXT", "the date that Llama 3.1 layouts tell the model"},
                       &JobOptions::date))
      .commands = {kRun, kPlan, kTokenize};
}

void add_execution(Table& table) {
  table.group("Execution", {kRun, kPlan, kBench});
  table.add(number_option<std::int64_t>(
      {"tensor-parallel", "auto|N", "ranks that share the model; for now all of them"},
      &JobOptions::tensor_parallel, {1, 1 << 20}, "auto"));
  table.add(number_option<std::int64_t>(
      {"threads", "auto|N",
       "threads of each rank, at most its CPUs; auto: these divided among the node's ranks"},
      &JobOptions::threads, {1, 4096}, "auto"));
  using Exchange = parallel::MpiCommunicator::Exchange;
  table.add(choice_option<Exchange>(
      {"exchange", "auto|mpi",
       "how ranks exchange partial sums; auto: inside a node by shared memory, between nodes by "
       "MPI; mpi: always by MPI, slower with the same bits, for nodes whose shared memory is small "
       "or broken"},
      &JobOptions::exchange, {{"auto", Exchange::kBest}, {"mpi", Exchange::kMpi}}));
  table.add(choice_option<DeviceKind>(
      {"device", "auto|cpu|cuda", "where to compute; this version computes on CPUs only"},
      &JobOptions::device,
      {{"auto", DeviceKind::kAuto}, {"cpu", DeviceKind::kCpu}, {"cuda", DeviceKind::kCuda}}));
  table.add(choice_option<std::optional<ops::Isa>>(
      {"isa", "auto|amx|avx2|avx512|generic", "build of the kernels; all give the same bits"},
      &JobOptions::isa, instruction_sets()));
  using ops::Compute;
  table.add(choice_option<Compute>(
      {"compute", "fp32|bf16",
       "operands of products; bf16: their inputs are rounded to bf16, for checkpoints stored as "
       "bf16: faster on CPUs with AMX, other answers, the same on every CPU"},
      &JobOptions::compute, {{"fp32", Compute::kFloat32}, {"bf16", Compute::kBFloat16}}));
  table.add(choice_option<DType>({"kv-dtype", "fp32|bf16",
                                  "of keys and values in the cache, those of images too; bf16: "
                                  "half the memory, other answers, "
                                  "the same on every CPU"},
                                 &JobOptions::kv_dtype,
                                 {{"fp32", DType::kFloat32}, {"bf16", DType::kBFloat16}}));
  table.add(number_option<std::int64_t>({"max-sequences", "N", "sequences that run at once"},
                                        &JobOptions::max_sequences, {1, 1 << 20}));
  table.add(number_option<std::int64_t>(
      {"max-step-tokens", "N", "tokens of one step, at least max-sequences"},
      &JobOptions::max_step_tokens, {1, 1 << 20}));
  table.add(
      bytes_option({"kv-memory", "auto|BYTES",
                    "KV cache of each rank (8G, 500M); auto: what the input needs, at most "
                    "half of the free memory; a long run uses all of it, as prefixes are kept"},
                   &JobOptions::kv_memory));
  table
      .add(bytes_option({"image-memory", "auto|BYTES",
                         "keys and values of images on each rank (models with vision); auto: what "
                         "the input needs, at most two fifths of the free memory, or four for a "
                         "single group of images"},
                        &JobOptions::image_memory))
      .commands = {kRun, kPlan};
  table
      .add(choice_option<bool>({"prefix-sharing", "on|off",
                                "compute what prompts begin with alike once, and keep it while the "
                                "KV cache has room; the "
                                "answers are the same"},
                               &JobOptions::prefix_sharing, {{"on", true}, {"off", false}}))
      .commands = {kRun, kPlan};
  table
      .add(number_or_off_option(
          {"speculation", "auto|off|N",
           "tokens of a sequence guessed ahead in a step from what stood in its text before, where "
           "few "
           "sequences run, and checked by the model; the answers are the same; auto: up to 11"},
          &JobOptions::speculation, {0, 64}))
      .commands = {kRun, kPlan};
  table.add(flag_option({"no-verify", "", "do not check the checksums of weights while reading"},
                        &JobOptions::no_verify));
  Option& ranks = table.add(number_option<std::int64_t>(
      {"ranks", "N", "number of ranks to plan for (default: those of this launch)"},
      &JobOptions::ranks, {1, 1 << 20}));
  ranks.commands = {kPlan};
  ranks.configurable = Configurable::kNo;
  Option& nodes = table.add(
      bytes_option({"node-memory", "auto|BYTES", "of the nodes to plan for; auto: as free here"},
                   &JobOptions::node_memory));
  nodes.commands = {kPlan};
  nodes.configurable = Configurable::kNo;
}

void add_other_subcommands(Table& table) {
  const auto only = [&table](Option option, Command command) {
    Option& added = table.add(std::move(option));
    added.commands = {command};
    added.configurable = Configurable::kNo;
  };
  table.group("Conversion", {});
  only(choice_option<std::optional<DType>>(
           {"dtype", "auto|fp32|bf16|fp16|int8|int4",
            "of the matrices; auto: the source's, fp32 if quantized; int8 and int4 take GGUF's "
            "Q8_0, "
            "Q4_0 and Q4_1 over exactly. plan: of a model without weights"},
           &JobOptions::dtype, dtypes()),
       kConvert);
  table.options.back().commands.push_back(kPlan);
  only(text_option({"name", "NAME", "of the model (default: from the source)"}, &JobOptions::name),
       kConvert);
  only(text_option({"tokenizer", "FILE|FOLDER",
                    "tokenizer.json or tokenizer.model of a source that has none"},
                   &JobOptions::tokenizer),
       kConvert);
  table.group("Display", {});
  only(flag_option({"json", "", "as JSON"}, &JobOptions::json), kInspect);
  table.options.back().commands.push_back(kBench);
  only(flag_option({"quick", "", "fewer repetitions"}, &JobOptions::quick), kBench);
  only(flag_option({"tensors", "", "list every tensor"}, &JobOptions::tensors), kInspect);
  only(flag_option({"chat", "", "lay the text out as a chat with one user message"},
                   &JobOptions::chat),
       kTokenize);
  only(flag_option({"ids", "", "the input is token ids; show their text"}, &JobOptions::ids),
       kTokenize);
}

void add_logging(Table& table) {
  table.group("Logging", {kRun, kPlan});
  table.add(number_option<double>({"log-interval", "SECONDS", "between progress lines; 0: none"},
                                  &JobOptions::log_interval, {0, 1e9}));
  table.options.back().commands.push_back(kConvert);
  Option& level = table.add(choice_option<log::Level>({"log-level", "debug|info|warning|error", ""},
                                                      &JobOptions::log_level, log_levels()));
  level.commands.assign(std::begin(kAllCommands), std::end(kAllCommands));
}

void add_general(Table& table) {
  table.group("General", {kRun, kPlan, kBench});
  Option& config = table.add(
      text_option({"config", "FILE", "options as `name = value` lines"}, &JobOptions::config));
  config.configurable = Configurable::kNo;
  Option& print = table.add(flag_option(
      {"print-config", "", "write the effective options as a configuration file and end"},
      &JobOptions::print_config));
  print.configurable = Configurable::kNo;
}

std::int64_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::int64_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::int64_t diagonal = row[0];
    row[0] = static_cast<std::int64_t>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::int64_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view command_name(Command command) {
  switch (command) {
    case Command::kConvert: return "convert";
    case Command::kInspect: return "inspect";
    case Command::kVerify: return "verify";
    case Command::kPlan: return "plan";
    case Command::kRun: return "run";
    case Command::kBench: return "bench";
    case Command::kTokenize: return "tokenize";
  }
  return "?";
}

bool Option::applies_to(Command command) const {
  return std::find(commands.begin(), commands.end(), command) != commands.end();
}

std::vector<Option> option_table() {
  Table table;
  add_input_output(table);
  add_record_defaults(table);
  add_execution(table);
  add_other_subcommands(table);
  add_logging(table);
  add_general(table);
  return std::move(table.options);
}

std::string nearest_name(const std::string& wrong, const std::vector<std::string>& names) {
  std::string best;
  std::int64_t best_distance = std::max<std::int64_t>(2, std::ssize(wrong) / 3) + 1;
  for (const std::string& name : names) {
    const std::int64_t distance = edit_distance(wrong, name);
    const bool extends = name.starts_with(wrong) || wrong.starts_with(name);
    const std::int64_t rated = extends ? std::min<std::int64_t>(distance, 2) : distance;
    if (rated < best_distance) {
      best_distance = rated;
      best = name;
    }
  }
  return best;
}

}  // namespace caravan::app
