#include "caravan/batch/request_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "json_fields.h"
#include "record_faults.h"
#include "request_fields.h"

namespace caravan::batch {
namespace {

constexpr std::int64_t kMaxTokensLimit = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxTopLogprobs = 20;
constexpr std::size_t kMaxCustomIdBytes = 4096;

// "messages.7.nmae" as "messages.*.nmae": one name, wherever it stands.
std::string without_positions(const std::string& name) {
  std::string general;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string step = name.substr(begin, end - begin);
    const bool position =
        !step.empty() && step.find_first_not_of("0123456789") == std::string::npos;
    if (begin > 0) general += '.';
    general += position ? "*" : step;
    begin = end + 1;
  }
  return general;
}

// Empty where there is none that can be used.
std::string parse_custom_id(JsonFields& envelope) {
  std::string id = envelope.needed_text("custom_id");
  if (envelope.faults().concern("custom_id")) return {};
  if (!id.empty() && id.size() <= kMaxCustomIdBytes) return id;
  envelope.note(
      "invalid_value",
      fmt::format("custom_id must have 1 to {} bytes, found {}", kMaxCustomIdBytes, id.size()),
      "custom_id");
  return {};
}

std::optional<Endpoint> parse_endpoint(JsonFields& envelope) {
  const auto method = envelope.text("method");
  if (method && *method != "POST") {
    envelope.note("invalid_value", fmt::format("method must be \"POST\", found \"{}\"", *method),
                  "method");
  }
  const std::string url = envelope.needed_text("url");
  if (url == "/v1/chat/completions") return Endpoint::kChat;
  if (url == "/v1/completions") return Endpoint::kCompletion;
  if (envelope.faults().concern("url")) return std::nullopt;
  envelope.note("unsupported_endpoint",
                fmt::format("url \"{}\" is not supported; supported are /v1/chat/completions and "
                            "/v1/completions",
                            url),
                "url");
  return std::nullopt;
}

void check_model(JsonFields& body, const ParserOptions& options) {
  const auto model = body.text("model");
  if (options.require_model_name && model && *model != options.model_name) {
    body.faults().add(
        {404, "model_not_found",
         fmt::format("model \"{}\" is not here; this run has \"{}\"", *model, options.model_name),
         body.path("model")});
  }
}

std::optional<std::int64_t> parse_max_tokens(JsonFields& body, Endpoint endpoint,
                                             const RequestDefaults& defaults) {
  const auto older = body.integer("max_tokens", 0, kMaxTokensLimit);
  if (endpoint == Endpoint::kChat) {  // the completions endpoint has no such field
    const auto newer = body.integer("max_completion_tokens", 0, kMaxTokensLimit);
    if (newer) return newer;
  }
  if (older) return older;
  if (defaults.max_tokens) return defaults.max_tokens;
  if (endpoint == Endpoint::kCompletion) return kDefaultCompletionTokens;
  return std::nullopt;
}

// The vLLM extension of both endpoints: per prompt position, ids with their log-probabilities.
void parse_prompt_logprobs(JsonFields& body, Record& record) {
  record.output.prompt_logprobs = body.integer("prompt_logprobs", 0, kMaxTopLogprobs);
  if (!record.output.prompt_logprobs) return;
  record.sampling.prompt_logprobs = true;
  record.sampling.top_prompt_logprobs =
      std::max(record.sampling.top_prompt_logprobs, *record.output.prompt_logprobs);
}

void parse_generation_prompt(JsonFields& body, Record& record) {
  const auto generation_prompt = body.boolean("add_generation_prompt");
  record.chat_options.continue_final_message =
      body.boolean("continue_final_message").value_or(false);
  if (!record.chat_options.continue_final_message) {
    record.chat_options.add_generation_prompt = generation_prompt.value_or(true);
    return;
  }
  const std::string path = body.path("continue_final_message");
  if (generation_prompt.value_or(false)) {
    body.note("invalid_value", fmt::format("{} excludes add_generation_prompt", path),
              "continue_final_message");
  }
  if (!record.messages.empty() && record.messages.back().role != "assistant") {
    body.note("invalid_value", fmt::format("{} needs a last message of the assistant", path),
              "continue_final_message");
  }
  record.chat_options.add_generation_prompt = false;
}

void parse_chat_body(JsonFields& body, const ParserOptions& options, std::string_view line,
                     Record& record) {
  OrderedBody ordered(line);
  RecordFaults& faults = body.faults();
  faults.attempt([&] { parse_messages(body, ordered, options, record); });
  record.chat_options.date = options.defaults.date;
  record.chat_options.tools = parse_tools(body, ordered);
  faults.attempt([&] { parse_template_arguments(body, record.chat_options); });
  parse_generation_prompt(body, record);
  record.output.logprobs = body.boolean("logprobs").value_or(false);
  record.output.top_logprobs = body.integer("top_logprobs", 0, kMaxTopLogprobs).value_or(0);
  if (record.output.top_logprobs > 0 && !record.output.logprobs &&
      !faults.concern(body.path("logprobs"))) {
    body.note("invalid_value", fmt::format("{} needs logprobs: true", body.path("top_logprobs")),
              "top_logprobs");
  }
}

// @throws Refused where there are no prompts.
std::vector<CompletionPrompt> parse_prompts(JsonFields& body, std::int64_t vocab_size) {
  const Json* prompt = body.find("prompt");
  const std::string path = body.path("prompt");
  if (prompt == nullptr) refuse("missing_field", fmt::format("{} is missing", path), path);
  if (prompt->is_string()) return {prompt->get<std::string>()};
  if (!prompt->is_array()) {
    refuse(
        "invalid_type",
        fmt::format("{} must be a string, an array of strings, an array of token ids or an array "
                    "of such arrays, found {}",
                    path, json_kind(*prompt)),
        path);
  }
  if (prompt->empty()) refuse("invalid_value", fmt::format("{} is empty", path), path);
  RecordFaults& faults = body.faults();
  if (prompt->front().is_number()) return {token_ids(*prompt, path, vocab_size, faults)};
  std::vector<CompletionPrompt> prompts;
  for (std::size_t i = 0; i < prompt->size(); ++i) {
    const Json& element = (*prompt)[i];
    const std::string element_path = fmt::format("{}.{}", path, i);
    if (element.type() != prompt->front().type() || !(element.is_string() || element.is_array())) {
      faults.add({400, "invalid_type",
                  fmt::format("{} must be {} as the first prompt is, found {}", element_path,
                              prompt->front().is_string() ? "a string" : "an array of token ids",
                              json_kind(element)),
                  element_path});
    } else if (element.is_string()) {
      prompts.emplace_back(element.get<std::string>());
    } else {
      prompts.emplace_back(token_ids(element, element_path, vocab_size, faults));
    }
  }
  return prompts;
}

void parse_completion_body(JsonFields& body, const ParserOptions& options, Record& record) {
  body.faults().attempt([&] {
    // With images, the first id behind the vocabulary is one.
    const bool has_images = options.reads_images && body.find("multi_modal_data") != nullptr;
    record.prompts = parse_prompts(body, options.vocab_size + (has_images ? 1 : 0));
    if (!body.faults().concern(body.path("prompt"))) parse_completion_images(body, options, record);
  });
  record.add_special_tokens = body.boolean("add_special_tokens").value_or(true);
  record.output.echo = body.boolean("echo").value_or(false);
  const auto logprobs = body.integer("logprobs", 0, kMaxTopLogprobs);
  record.output.logprobs = logprobs.has_value();
  record.output.top_logprobs = logprobs.value_or(0);
  if (record.output.echo && logprobs) {
    record.sampling.prompt_logprobs = true;
    record.sampling.top_prompt_logprobs = *logprobs;
  }
}

void check_consistency(JsonFields& body, const Record& record) {
  const RecordFaults& faults = body.faults();
  for (const char* limit : {"max_tokens", "max_completion_tokens"}) {
    if (faults.concern(body.path(limit))) return;
  }
  if (record.max_tokens && record.sampling.min_tokens > *record.max_tokens) {
    body.note("invalid_value",
              fmt::format("{} ({}) is above the token limit ({})", body.path("min_tokens"),
                          record.sampling.min_tokens, *record.max_tokens),
              "min_tokens");
  }
}

// `line` is the whole request, of which `value` is the body.
void parse_body(JsonFields& body, std::string_view line, const ParserOptions& options,
                Record& record) {
  check_unsupported(body, record.endpoint);
  check_model(body, options);
  record.sampling = parse_sampling(body, options);
  const auto seed = body.integer("seed", std::numeric_limits<std::int64_t>::min(),
                                 std::numeric_limits<std::int64_t>::max());
  record.sampling.seed = seed ? static_cast<std::uint64_t>(*seed)
                              : record_seed(options.defaults.seed, record.custom_id);
  record.max_tokens = parse_max_tokens(body, record.endpoint, options.defaults);
  if (record.endpoint == Endpoint::kChat) {
    parse_chat_body(body, options, line, record);
  } else {
    parse_completion_body(body, options, record);
  }
  record.sampling.logprobs = record.output.logprobs;
  record.sampling.top_logprobs = record.output.top_logprobs;
  parse_prompt_logprobs(body, record);
  record.output.return_token_ids = body.boolean("return_token_ids").value_or(false);
  check_consistency(body, record);
}

// The envelope's `body`, or null with a fault.
const Json* find_body(JsonFields& envelope) {
  const Json* body = envelope.find("body");
  if (body == nullptr) {
    envelope.note("missing_field", "body is missing", "body");
  } else if (!body->is_object()) {
    envelope.note("invalid_type", fmt::format("body must be an object, found {}", json_kind(*body)),
                  "body");
    return nullptr;
  }
  return body;
}

}  // namespace

RequestParser::RequestParser(ParserOptions options,
                             std::function<void(const std::string& name)> warn_unknown)
    : options_(std::move(options)), warn_unknown_(std::move(warn_unknown)) {}

ParsedRecord RequestParser::parse_line(std::string_view line, std::string& custom_id) const {
  custom_id.clear();
  RecordFaults faults;
  Record record;
  std::vector<std::string> unknown;
  faults.attempt([&] {
    const NotedJson parsed = parse_json_object(line);
    JsonFields envelope(parsed.value, "", faults);
    const bool is_repeated = !parsed.repeated_at.empty();
    if (!is_repeated || parsed.repeated_key != "custom_id") {
      record.custom_id = parse_custom_id(envelope);
    }
    custom_id = record.custom_id;
    if (is_repeated) {  // which of the two is meant cannot be known
      refuse("invalid_json",
             fmt::format("the key {} is there twice in one object, again at {}",
                         short_json(parsed.repeated_key), parsed.repeated_at),
             parsed.repeated_key);
    }
    const auto endpoint = parse_endpoint(envelope);
    const Json* value = find_body(envelope);
    if (!endpoint || value == nullptr) return;
    record.endpoint = *endpoint;
    record.content_hash = text_hash(value->dump());
    JsonFields body(*value, "", faults);
    parse_body(body, line, options_, record);
    unknown = envelope.unknown();
    const auto names = body.unknown();
    unknown.insert(unknown.end(), names.begin(), names.end());
  });
  if (options_.unknown_fields == UnknownFields::kRefuse) {
    for (const std::string& name : unknown) {
      faults.add({400, "unknown_parameter", fmt::format("{} is not a known field", name), name});
    }
  }
  if (faults.any()) return faults.joined();
  for (const std::string& name : unknown) {
    if (warn_unknown_) warn_unknown_(without_positions(name));
  }
  return record;
}

std::uint64_t text_hash(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3U;
  }
  return hash;
}

std::uint64_t record_seed(std::uint64_t job_seed, std::string_view custom_id) {
  // The finaliser of splitmix64 spreads near-equal ids ("r-1", "r-2") over all bits.
  std::uint64_t z = text_hash(custom_id) + job_seed * 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

}  // namespace caravan::batch
