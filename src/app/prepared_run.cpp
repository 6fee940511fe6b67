#include "caravan/app/prepared_run.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <utility>

#include "caravan/app/option_parser.h"
#include "caravan/app/stop_signals.h"
#include "caravan/core/clock.h"
#include "caravan/core/error.h"
#include "caravan/core/faults.h"
#include "caravan/core/log.h"
#include "caravan/core/machine_limits.h"
#include "caravan/core/thread_team.h"
#include "caravan/ops/kv_pool.h"
#include "caravan/text/utf8.h"

namespace caravan::app {
namespace {

constexpr std::size_t kMostListed = 20;  // records that do not fit the memory

std::vector<std::string> folders_among(const std::vector<std::string>& inputs) {
  std::vector<std::string> folders;
  for (const std::string& input : inputs) {
    std::error_code error;
    if (std::filesystem::is_directory(input, error)) folders.push_back(input);
  }
  return folders;
}

// Warns once for each name.
std::function<void(const std::string&)> unknown_field_warning() {
  return [seen = std::set<std::string>()](const std::string& name) mutable {
    if (seen.insert(name).second) {
      log::warning(
          "requests have the unknown field \"{}\"; it is ignored (--strict-fields makes it "
          "a fault)",
          log::escape_line(name));
    }
  };
}

// Texts that become part of prompts, of answers, or are compared with them.
void check_texts(const JobOptions& options) {
  Faults faults;
  const auto check = [&](const char* name, const std::string& text) {
    faults.attempt([&] {
      const auto offset = text::find_invalid_utf8(text);
      CARAVAN_CHECK(!offset, InputError, "--{}: not valid UTF-8: byte 0x{:02x} at byte {}", name,
                    static_cast<unsigned char>(text[*offset]), *offset);
    });
  };
  if (options.prompt) check("prompt", *options.prompt);
  check("system", options.system);
  check("date", options.date);
  check("model-name", options.model_name);
  for (const std::string& stop : options.stop) check("stop", stop);
  faults.require_none();
}

}  // namespace

void check_options(Command command, const JobOptions& options) {
  std::vector<std::string> faults;
  if (options.model.empty()) faults.emplace_back("--model MODEL.h5 is missing");
  if (command == Command::kRun) {
    if (options.prompt && (!options.inputs.empty() || !options.output.empty())) {
      faults.emplace_back("--prompt answers on standard output and excludes --input and --output");
    }
    if (!options.prompt && options.inputs.empty()) {
      faults.emplace_back("--input PROMPTS (or --prompt TEXT) is missing");
    }
    if (!options.inputs.empty() && options.output.empty()) {
      faults.emplace_back("--output ANSWERS.jsonl is missing");
    }
  }
  if (!options.images.empty() && !options.prompt) {
    faults.emplace_back("--image belongs to --prompt TEXT; records of --input name their images");
  }
  if (options.output == "-") {
    faults.emplace_back("--output - is not possible: a run that can be continued needs a file");
  }
  if (options.max_sequences > options.max_step_tokens) {
    faults.push_back(fmt::format(
        "--max-sequences ({}) must not exceed --max-step-tokens ({}): each running sequence has a "
        "token in every step",
        options.max_sequences, options.max_step_tokens));
  }
  for (const std::string& stop : options.stop) {
    if (stop.empty()) faults.emplace_back("--stop must not be empty");
  }
  CARAVAN_CHECK(faults.empty(), UsageError, "{}", fmt::join(faults, "\n"));
  check_texts(options);
}

void check_compute(const JobOptions& options, DType dtype) {
  CARAVAN_CHECK(options.compute == ops::Compute::kFloat32 || dtype == DType::kBFloat16, ConfigError,
                "--compute bf16 multiplies weights stored as bf16, but {} stores {}: convert the "
                "source again with --dtype bf16, or use --compute fp32",
                options.model, dtype_name(dtype));
}

MemoryRequest memory_request(const JobOptions& options, const model::LlamaConfig& config,
                             DType dtype) {
  MemoryRequest request;
  request.config = config;
  request.dtype = dtype;
  request.kv_dtype = options.kv_dtype;
  request.max_sequences = options.max_sequences;
  request.max_step_tokens = options.max_step_tokens;
  request.num_threads = options.threads.value_or(usable_cpus());
  request.kv_bytes = options.kv_memory;
  request.image_bytes = options.image_memory;
  assume_records(request, options.max_tokens);
  return request;
}

PreparedRun::PreparedRun(const JobOptions& options) : options_(options) {
  open_parts();
  parser_ = std::make_unique<batch::RequestParser>(parser_options(options_, *model_),
                                                   unknown_field_warning());
  builder_ = std::make_unique<batch::PromptBuilder>(
      *model_->tokenizer, *model_->chat_format, model_->file.description().config.max_positions);
  check_defaults(*model_, parser_->options(), options_.model);
  open_images();
  log::info("defaults of records: {}", describe_defaults(parser_->options().defaults, *model_));
  if (options_.prompt) build_prompt();
  if (files_) faults_.attempt([this] { check_records(); });
  const checkpoint::ModelDescription& description = model_->file.description();
  memory_request_ = app::memory_request(options_, description.config, description.dtype);
  request_records();
}

void PreparedRun::plan(const std::vector<std::int64_t>& free_bytes) {
  memory_request_.free_bytes = free_bytes;
  if (!files_ || workload_) {
    faults_.attempt([this] {
      memory_ = plan_memory(memory_request_);
      check_images();
      check_capacity();
    });
  }
  faults_.require_none();
}

void PreparedRun::open_parts() {
  Faults faults;
  const Stopwatch watch;
  faults.attempt([this] { model_.emplace(open_model(options_)); });
  if (model_) {
    const auto& description = model_->file.description();
    log::info("model {} ({}, {}): header and tokenizer in {:.2f} s", description.name,
              dtype_name(description.dtype),
              format_bytes(static_cast<double>(model_->file.file_bytes())), watch.seconds());
    faults.attempt([&] { check_compute(options_, description.dtype); });
  }
  if (!options_.output.empty()) names_.emplace(options_.output);
  if (!options_.inputs.empty()) {
    batch::PromptFilesOptions file_options;
    file_options.format = options_.input_format;
    file_options.text_files = options_.text_per_file ? batch::TextFiles::kPromptPerFile
                                                     : batch::TextFiles::kPromptPerLine;
    if (model_) file_options.text_endpoint = model_->text_endpoint;
    file_options.system = options_.system;
    if (names_) file_options.spool_folder = names_->folder;
    file_options.stop_requested = [] { return stop_signal() != 0; };
    faults.attempt([&] { files_.emplace(options_.inputs, file_options); });
  }
  if (names_) {
    faults.attempt([this] { batch::check_not_replaced(*names_, "--model", options_.model); });
    if (!options_.config.empty()) {
      faults.attempt([this] { batch::check_not_replaced(*names_, "--config", options_.config); });
    }
    faults.attempt([this] {
      batch::check_output(
          *names_, files_ ? files_->paths() : options_.inputs, folders_among(options_.inputs),
          options_.overwrite ? batch::ExistingOutput::kReplace : batch::ExistingOutput::kRefuse);
    });
  }
  faults.require_none();
}

void PreparedRun::open_images() {
  const model::LlamaConfig& config = model_->file.description().config;
  if (!config.vision) return;
  batch::ImageOptions images;
  if (!options_.media_root.empty()) images.media_root = options_.media_root;
  images.max_bytes = options_.max_image_bytes;
  images.decoding = {options_.max_image_pixels, options_.image_alpha};
  images.tiling.tile_size = config.vision->tile_size;
  images.tiling.max_tiles = model::kMaxTiles;
  images.tile_tokens = config.vision->tile_tokens();
  images.block_tokens = ops::KvPool::kBlockTokens;
  // What a user names on the command line may be anywhere.
  if (options_.prompt && !images.media_root) images.media_root = "/";
  images_.emplace(std::move(images));
}

void PreparedRun::check_records() {
  const Stopwatch watch;
  workload_.emplace(std::move(*files_), *parser_, *builder_, images_ ? &*images_ : nullptr);
  const batch::WorkloadSummary& summary = workload_->summary();
  log::info("input: {} records ({} chat, {} completions, {} faulty), {}, checked in {:.2f} s",
            summary.records, summary.chat, summary.completions, summary.faulty,
            format_bytes(static_cast<double>(summary.input_bytes)), watch.seconds());
  if (summary.records == 0 && workload_->fault_list(1).empty()) {
    log::warning("the input has no records: the output will be empty");
  }
  if (summary.bos_texts > 0) {
    log::warning(
        "{} completion prompts begin with the spelling of the start token; in prompts it is plain "
        "text, and the model's own start token comes before it. Use /v1/chat/completions, or give "
        "token ids",
        summary.bos_texts);
  }
  if (summary.images > 0) {
    log::info("input: {} images in {} records, {} distinct", summary.images, summary.image_records,
              summary.distinct_images);
  }
  if (summary.blank_lines > 0) log::info("input: {} blank lines skipped", summary.blank_lines);
  if (summary.open_ended > 0) {
    log::info("input: {} records have no max_tokens and may fill the context", summary.open_ended);
  }
  workload_->require_readable();
  if (summary.faulty == 0) return;
  if (options_.on_invalid == OnInvalid::kFail) workload_->require_valid();
  constexpr std::size_t kMostLines = 50;
  log::warning("{}\nThey are answered with error lines", workload_->fault_list(kMostLines));
}

void PreparedRun::build_prompt() {
  batch::PlainPrompt plain{"prompt", model_->text_endpoint, options_.system, *options_.prompt, {}};
  for (const std::string& image : options_.images) {
    // Paths are relative to the media root, which is the folder of no file here.
    const bool is_address = image.starts_with("data:") || image.find("://") != std::string::npos;
    const bool is_path = options_.media_root.empty() && !is_address;
    plain.images.push_back(is_path ? std::filesystem::absolute(image).string() : image);
  }
  batch::ParsedRecord parsed = parser_->parse_plain(plain);
  const auto* fault = std::get_if<batch::RecordFault>(&parsed);
  CARAVAN_CHECK(fault == nullptr, InputError, "--prompt: {}", log::escape_line(fault->message));
  prompt_record_ = std::get<batch::Record>(std::move(parsed));
  batch::BuiltPrompts built = builder_->build(*prompt_record_);
  fault = std::get_if<batch::RecordFault>(&built);
  CARAVAN_CHECK(fault == nullptr, InputError, "--prompt: {}", log::escape_line(fault->message));
  prompt_ids_ = std::get<std::vector<batch::TokenizedPrompt>>(std::move(built));
  check_prompt_images();
}

void PreparedRun::check_prompt_images() {
  if (prompt_record_->images.empty()) return;
  prompt_record_->image_source = images_->source_of({});
  auto checked = images_->check(*prompt_record_);
  const auto* fault = std::get_if<batch::RecordFault>(&checked);
  CARAVAN_CHECK(fault == nullptr, InputError, "--image: {}", log::escape_line(fault->message));
  if (batch::computes(*prompt_record_)) prompt_blocks_ = std::get<batch::ImageBlocks>(checked);
}

// What the records need, or the prompt.
void PreparedRun::request_records() {
  MemoryRequest& request = memory_request_;
  if (workload_) {
    request.needed_tokens = workload_->worst_case_tokens(options_.max_sequences);
    request.largest_tokens = workload_->worst_case_tokens(1);
    request.needed_image_blocks = workload_->worst_case_image_blocks(options_.max_sequences);
    request.lasting_image_blocks = workload_->lasting_image_blocks(options_.max_sequences);
    request.largest_image_group = workload_->largest_image_group();
    request.most_seen_blocks = workload_->most_seen_image_blocks();
  } else if (prompt_record_) {
    request.needed_tokens = request.largest_tokens = builder_->worst_case_tokens(*prompt_record_);
    request.needed_image_blocks = prompt_blocks_.all;
    request.largest_image_group = prompt_blocks_.largest_group;
    request.most_seen_blocks = prompt_blocks_.most_seen;
  }
  if (images_ && (workload_ || prompt_record_)) {
    request.preparation_bytes = images_->preparation_bytes(kMaxPreparedBytes);
  }
}

// Images of a record that do not fit together.
void PreparedRun::check_images() {
  if (memory_.limits.image_blocks >= memory_request_.largest_image_group) return;
  const auto fault = [this](std::int64_t blocks) {
    return image_fault(memory_request_, memory_, blocks);
  };
  CARAVAN_CHECK(workload_, ConfigError, "--prompt: {}", fault(memory_request_.largest_image_group));
  const std::vector<batch::LargeImages> large =
      workload_->images_too_large(memory_.limits.image_blocks);
  std::string list;
  for (std::size_t i = 0; i < large.size() && i < kMostListed; ++i) {
    list += fmt::format("\n{}: {}", log::escape_line(large[i].label), fault(large[i].blocks));
  }
  if (large.size() > kMostListed) {
    list += fmt::format("\n... and {} more", large.size() - kMostListed);
  }
  const std::string found = fmt::format(
      "{} record(s) have images that do not fit the memory for images:{}", large.size(), list);
  CARAVAN_CHECK(options_.on_invalid == OnInvalid::kRecord, ConfigError,
                "{}\nOr use --on-invalid=record to answer them with error lines", found);
  log::warning("{}\nThey are answered with error lines", found);
  for (const batch::LargeImages& record : large) {
    workload_->refuse_images(record, fault(record.blocks));
  }
  request_records();  // without those
  memory_ = plan_memory(memory_request_);
}

// A record that fits the model and not the cache is a fault of this run, not of the record: were it
// answered with an error line, the answer would depend on the memory of the machine.
void PreparedRun::check_capacity() {
  std::vector<batch::LargeRecord> large;
  if (workload_) large = workload_->too_large(memory_.kv_tokens());
  if (prompt_record_ && !fits_cache(prompt_ids_.front())) {
    const batch::TokenizedPrompt& prompt = prompt_ids_.front();
    large.push_back({"--prompt", std::ssize(prompt.ids), prompt.max_tokens});
  }
  if (large.empty()) return;
  std::string list;
  std::int64_t most_tokens = 0;
  std::int64_t longest_prompt = 0;
  for (std::size_t i = 0; i < large.size(); ++i) {
    most_tokens = std::max(most_tokens, large[i].prompt_tokens + large[i].max_tokens - 1);
    longest_prompt = std::max(longest_prompt, large[i].prompt_tokens);
    if (i >= kMostListed) continue;
    list +=
        fmt::format("\n{}: the prompt has {} tokens and may get {} more",
                    log::escape_line(large[i].label), large[i].prompt_tokens, large[i].max_tokens);
  }
  if (large.size() > kMostListed) {
    list += fmt::format("\n... and {} more", large.size() - kMostListed);
  }
  const std::int64_t room = memory_.kv_tokens() + 1 - longest_prompt;
  throw ConfigError(fmt::format(
      "{} record(s) fit the model's context but not the KV cache of this run, which has {} "
      "tokens:{}\nUse --kv-memory {} or more (for each rank), or more ranks{}",
      large.size(), memory_.kv_tokens(), list, memory_.kv_bytes_for(most_tokens),
      room < 1 ? std::string()
               : fmt::format(", or let them have a max_tokens of at most {} (--max-tokens for "
                             "records without one)",
                             room)));
}

bool PreparedRun::fits_cache(const batch::TokenizedPrompt& prompt) const {
  return prompt.max_tokens == 0 ||
         std::ssize(prompt.ids) + prompt.max_tokens - 1 <= memory_.kv_tokens();
}

}  // namespace caravan::app
