#include "caravan/app/model_front.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "caravan/core/log.h"
#include "caravan/engine/engine.h"

namespace caravan::app {
namespace {

void add_unique(std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& more) {
  for (const std::int32_t id : more) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
}

batch::Endpoint text_endpoint(const JobOptions& options, text::ChatFormatKind kind) {
  switch (options.endpoint) {
    case TextEndpoint::kChat: return batch::Endpoint::kChat;
    case TextEndpoint::kCompletion: return batch::Endpoint::kCompletion;
    case TextEndpoint::kAuto: break;
  }
  return kind == text::ChatFormatKind::kNone ? batch::Endpoint::kCompletion
                                             : batch::Endpoint::kChat;
}

}  // namespace

ModelFront open_model(const JobOptions& options) {
  CARAVAN_CHECK(!options.model.empty(), UsageError,
                "--model MODEL.h5 is missing; `caravan convert` makes such a file");
  std::error_code error;
  CARAVAN_CHECK(std::filesystem::exists(options.model, error) || error, MissingInputError,
                "--model {}: no such file; `caravan convert` makes one of a downloaded model",
                options.model);
  checkpoint::ModelFile file = checkpoint::ModelFile::open(options.model);
  file.set_verify(!options.no_verify);
  const checkpoint::ModelDescription& description = file.description();
  auto tokenizer = std::make_unique<text::Tokenizer>(description.tokenizer);
  const auto kind = options.chat_format.value_or(description.chat_format);
  // The stored default system text belongs to the stored layout.
  const std::string system =
      kind == description.chat_format ? description.chat_default_system : std::string();
  std::optional<std::int32_t> image_id;
  if (const auto& vision = description.config.vision) {
    image_id = checked_cast<std::int32_t>(vision->image_token_id);
  }
  auto chat_format = std::make_unique<text::ChatFormat>(kind, *tokenizer, system, image_id);
  if (options.chat_format && chat_format->leaves_out_bos()) {
    log::warning("{}", text::missing_bos_warning(kind));
  }
  std::string name = options.model_name.empty() ? description.name : options.model_name;
  std::vector<std::int32_t> stop_ids = description.generation.stop_ids;
  if (kind != text::ChatFormatKind::kNone) add_unique(stop_ids, chat_format->stop_ids());
  const batch::Endpoint endpoint = text_endpoint(options, kind);
  return {std::move(file), std::move(tokenizer), std::move(chat_format),
          std::move(name), std::move(stop_ids),  endpoint};
}

batch::ParserOptions parser_options(const JobOptions& options, const ModelFront& model) {
  const checkpoint::ModelDescription& description = model.file.description();
  const checkpoint::GenerationDefaults& generation = description.generation;
  batch::ParserOptions parser;
  batch::RequestDefaults& defaults = parser.defaults;
  defaults.temperature = options.temperature.value_or(generation.temperature.value_or(1.0));
  defaults.top_p = options.top_p.value_or(generation.top_p.value_or(1.0));
  defaults.top_k = options.top_k.value_or(generation.top_k.value_or(0));
  defaults.min_p = options.min_p.value_or(0.0);
  defaults.repetition_penalty = generation.repetition_penalty.value_or(1.0);
  defaults.seed = options.seed;
  defaults.max_tokens = options.max_tokens;
  defaults.stop_strings = options.stop;
  defaults.stop_ids = model.stop_ids;
  defaults.date = options.date;
  parser.model_name = model.name;
  parser.require_model_name = !options.model_name.empty();
  parser.unknown_fields =
      options.strict_fields ? batch::UnknownFields::kRefuse : batch::UnknownFields::kWarn;
  parser.vocab_size = description.config.vocab_size;
  parser.reads_images = description.config.vision.has_value();
  parser.max_images = options.max_images;
  // As vLLM: only this layout's template goes through the parts itself, one right behind the other.
  if (model.chat_format->kind() == text::ChatFormatKind::kLlama32Vision) {
    parser.text_part_separator.clear();
  }
  return parser;
}

void check_defaults(const ModelFront& model, const batch::ParserOptions& options,
                    const std::string& path) {
  const batch::ParsedRecord plain =
      batch::RequestParser(options).parse_plain({"", batch::Endpoint::kCompletion, "", "x"});
  engine::Request request{0, {0}, {}, std::get<batch::Record>(plain).sampling};
  request.sampling.max_tokens = 0;
  const std::string reason = engine::Engine::refusal(request, model.file.description().config, {});
  CARAVAN_CHECK(
      reason.empty(), ConfigError,
      "{}: the sampling defaults of the checkpoint cannot be used: {}. Give the option of "
      "that name, or convert the model again",
      path, reason);
}

std::string describe_defaults(const batch::RequestDefaults& defaults, const ModelFront& model) {
  std::string stops;
  for (const std::int32_t id : defaults.stop_ids) {
    stops += fmt::format("{}{} {}", stops.empty() ? "" : ", ", id,
                         model.tokenizer->token_bytes(id, true));
  }
  const std::string max_tokens =
      defaults.max_tokens ? std::to_string(*defaults.max_tokens)
                          : fmt::format("up to the context's end ({}) for chat, {} for completions",
                                        model.file.description().config.max_positions,
                                        batch::kDefaultCompletionTokens);
  return fmt::format(
      "temperature {}, top-p {}, top-k {}, min-p {}, repetition penalty {}, seed {}, max-tokens "
      "{}, "
      "chat format {}, stops at [{}]",
      defaults.temperature, defaults.top_p, defaults.top_k, defaults.min_p,
      defaults.repetition_penalty, defaults.seed, max_tokens,
      text::chat_format_name(model.chat_format->kind()), stops);
}

}  // namespace caravan::app
