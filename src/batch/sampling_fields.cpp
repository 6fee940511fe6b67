#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <optional>

#include "request_fields.h"

namespace caravan::batch {
namespace {

using engine::kMaxChoices;

constexpr std::size_t kMaxStopStrings = 64;
constexpr std::size_t kMaxStopBytes = 4096;  // of one string: bounds what decoding holds back
constexpr std::int64_t kNoLimit = std::numeric_limits<std::int32_t>::max();

void parse_stop(JsonFields& body, engine::SamplingParams& sampling) {
  const Json* stop = body.find("stop");
  if (stop == nullptr) return;
  const std::string path = body.path("stop");
  if (!stop->is_string() && !stop->is_array()) {
    body.note(
        "invalid_type",
        fmt::format("{} must be a string or an array of strings, found {}", path, json_kind(*stop)),
        "stop");
    return;
  }
  const Json list = stop->is_array() ? *stop : Json::array({*stop});
  if (list.size() > kMaxStopStrings) {
    body.note("invalid_value",
              fmt::format("{} has {} strings, at most {} are allowed", path, list.size(),
                          kMaxStopStrings),
              "stop");
  }
  sampling.stop_strings.clear();
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_string()) {
      body.note("invalid_type",
                fmt::format("{}.{} must be a string, found {}", path, i, json_kind(list[i])),
                "stop");
      continue;
    }
    auto text = list[i].get<std::string>();
    if (text.empty() || text.size() > kMaxStopBytes) {
      body.note("invalid_value",
                fmt::format("{}: a stop string has 1 to {} bytes, found {}", path, kMaxStopBytes,
                            text.size()),
                "stop");
      continue;
    }
    sampling.stop_strings.push_back(std::move(text));
  }
}

// The token id that a key of logit_bias spells.
std::optional<std::int32_t> id_of_key(const std::string& key, std::int64_t vocab_size) {
  std::int64_t id = -1;
  const auto [end, fault] = std::from_chars(key.data(), key.data() + key.size(), id);
  if (fault != std::errc{} || end != key.data() + key.size() || id < 0 || id >= vocab_size) {
    return std::nullopt;
  }
  return static_cast<std::int32_t>(id);
}

void parse_logit_bias(JsonFields& body, std::int64_t vocab_size, engine::SamplingParams& sampling) {
  const Json* bias = body.find("logit_bias");
  if (bias == nullptr) return;
  const std::string path = body.path("logit_bias");
  if (!bias->is_object()) {
    body.note("invalid_type",
              fmt::format("{} must be an object of token ids and numbers, found {}", path,
                          json_kind(*bias)),
              "logit_bias");
    return;
  }
  for (const auto& [key, value] : bias->items()) {
    const auto id = id_of_key(key, vocab_size);
    if (!id) {
      body.note("invalid_value",
                fmt::format("{}: \"{}\" is not a token id (0 to {})", path, key, vocab_size - 1),
                "logit_bias");
      continue;
    }
    if (!value.is_number() || value.get<double>() < -100 || value.get<double>() > 100) {
      body.note("invalid_value",
                fmt::format("{}.{} must be a number between -100 and 100, found {}", path, key,
                            value.is_number() ? value.dump() : std::string(json_kind(value))),
                "logit_bias");
      continue;
    }
    if (!sampling.logit_bias.emplace(*id, value.get<double>()).second) {
      body.note("invalid_value",
                fmt::format("{} has token id {} more than once (\"{}\" is one spelling of it)",
                            path, *id, key),
                "logit_bias");
    }
  }
}

std::int64_t parse_top_k(JsonFields& body, std::int64_t fallback) {
  const std::int64_t top_k = body.integer("top_k", -1, kNoLimit).value_or(fallback);
  return top_k < 0 ? 0 : top_k;  // -1 and 0 both mean off
}

bool is_plain_text_format(const Json& format) {
  return format.is_object() && format.size() == 1 && format.contains("type") &&
         format["type"] == "text";
}

// False for a field that is absent, null or empty.
bool asks_for_something(const Json* value) {
  if (value == nullptr) return false;
  if (value->is_string()) return !value->get_ref<const std::string&>().empty();
  return !value->is_structured() || !value->empty();
}

void note_unsupported(JsonFields& body, const std::string& name,
                      std::string_view reason = "is not supported") {
  body.note("unsupported_parameter", fmt::format("{} {}", body.path(name), reason), name);
}

}  // namespace

engine::SamplingParams default_sampling(const RequestDefaults& defaults) {
  engine::SamplingParams sampling;
  sampling.temperature = defaults.temperature;
  sampling.top_p = defaults.top_p;
  sampling.top_k = defaults.top_k;
  sampling.min_p = defaults.min_p;
  sampling.repetition_penalty = defaults.repetition_penalty;
  sampling.stop_strings = defaults.stop_strings;
  sampling.stop_ids = defaults.stop_ids;
  sampling.eos_ids = defaults.stop_ids;
  return sampling;
}

engine::SamplingParams parse_sampling(JsonFields& body, const ParserOptions& options) {
  engine::SamplingParams sampling = default_sampling(options.defaults);
  sampling.temperature = body.number("temperature", 0, 100).value_or(sampling.temperature);
  if (const auto top_p = body.number("top_p", 0, 1)) {
    sampling.top_p = *top_p;
    if (*top_p <= 0) {
      body.note("invalid_value", fmt::format("{} must be above 0, found 0", body.path("top_p")),
                "top_p");
    }
  }
  sampling.top_k = parse_top_k(body, sampling.top_k);
  sampling.min_p = body.number("min_p", 0, 1).value_or(sampling.min_p);
  sampling.repetition_penalty =
      body.number("repetition_penalty", 1e-3, 1e3).value_or(sampling.repetition_penalty);
  sampling.presence_penalty = body.number("presence_penalty", -2, 2).value_or(0);
  sampling.frequency_penalty = body.number("frequency_penalty", -2, 2).value_or(0);
  parse_logit_bias(body, options.vocab_size, sampling);
  parse_stop(body, sampling);
  if (body.boolean("ignore_eos").value_or(false)) {  // ids that the request names still stop it
    sampling.stop_ids.clear();
    sampling.eos_ids.clear();
  }
  if (const auto ids = body.ids("stop_token_ids", options.vocab_size)) {
    sampling.stop_ids.insert(sampling.stop_ids.end(), ids->begin(), ids->end());
  }
  sampling.num_choices = body.integer("n", 1, kMaxChoices).value_or(1);
  sampling.min_tokens = body.integer("min_tokens", 0, kNoLimit).value_or(0);
  sampling.include_stop_string = body.boolean("include_stop_str_in_output").value_or(false);
  sampling.show_special = !body.boolean("skip_special_tokens").value_or(true);
  return sampling;
}

void check_unsupported(JsonFields& body, Endpoint endpoint) {
  if (body.boolean("stream").value_or(false)) {
    note_unsupported(body, "stream", "must be false: a batch answers with whole lines");
  }
  for (const char* name : {"functions",
                           "function_call",
                           "stream_options",
                           "audio",
                           "prediction",
                           "web_search_options",
                           "reasoning_effort",
                           "verbosity",
                           "suffix",
                           "logits_processors",
                           "guided_json",
                           "guided_regex",
                           "guided_choice",
                           "guided_grammar",
                           "structured_outputs",
                           "truncate_prompt_tokens",
                           "chat_template",
                           "documents",
                           "prompt_embeds",
                           "bad_words",
                           "allowed_token_ids",
                           "mm_processor_kwargs",
                           "kv_transfer_params",
                           "length_penalty"}) {
    if (asks_for_something(body.find(name))) note_unsupported(body, name);
  }
  const Json* choice = body.find("tool_choice");
  if (choice != nullptr && *choice != "none" && *choice != "auto") {
    note_unsupported(body, "tool_choice", "is not supported beyond \"auto\" and \"none\"");
  }
  const Json* format = body.find("response_format");
  if (format != nullptr && !is_plain_text_format(*format)) {
    note_unsupported(body, "response_format", "is not supported beyond {\"type\": \"text\"}");
  }
  const Json* modalities = body.find("modalities");
  if (modalities != nullptr && *modalities != Json::array({"text"})) {
    note_unsupported(body, "modalities", "is not supported beyond [\"text\"]");
  }
  const std::int64_t choices = body.integer("n", 1, kMaxChoices).value_or(1);
  if (body.integer("best_of", 1, kMaxChoices).value_or(choices) != choices) {
    note_unsupported(body, "best_of", "is not supported beyond the value of n");
  }
  for (const char* name : {"use_beam_search", "return_tokens_as_token_ids"}) {
    if (body.boolean(name).value_or(false)) note_unsupported(body, name);
  }
  if (endpoint == Endpoint::kChat) {
    for (const char* name : {"echo", "add_special_tokens"}) {
      if (body.boolean(name).value_or(false))
        note_unsupported(body, name, "is not supported for chat");
    }
    if (asks_for_something(body.find("multi_modal_data"))) {
      note_unsupported(body, "multi_modal_data",
                       "is of raw prompts alone: images of a chat are image_url parts");
    }
  } else {
    for (const char* name : {"tools", "chat_template_kwargs"}) {
      if (asks_for_something(body.find(name)))
        note_unsupported(body, name, "is not supported for completions");
    }
    for (const char* name : {"image", "images", "image_url"}) {
      if (asks_for_something(body.find(name))) {
        note_unsupported(body, name,
                         "is no field of completions: images of a raw prompt are "
                         "multi_modal_data.image, those of a chat image_url parts");
      }
    }
  }
  body.ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
               "parallel_tool_calls", "priority", "request_id", "spaces_between_special_tokens"});
}

}  // namespace caravan::batch
