#include "caravan/batch/response_writer.h"

#include <fmt/format.h>

#include <iterator>

#include "caravan/core/error.h"
#include "caravan/io/sha256.h"
#include "caravan/text/detokenizer.h"
#include "json_text.h"
#include "logprob_text.h"
#include "request_fields.h"

namespace caravan::batch {
namespace {

// 96 bits of a hash over everything that makes this answer what it is.
std::string content_id(const std::string& model_key, const std::string& custom_id,
                       std::uint64_t content_hash) {
  io::Sha256 hash;
  hash.update(fmt::format("{}\n{}\n", model_key, content_hash));
  hash.update(custom_id);
  return hash.hex_digest().substr(0, 24);
}

void append_ids(std::string& out, const std::vector<std::int32_t>& ids) {
  fmt::format_to(std::back_inserter(out), "[{}]", fmt::join(ids, ","));
}

std::string_view finish_name(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kStop: return "stop";
    case engine::FinishReason::kLength: return "length";
  }
  return "?";
}

void append_stop(std::string& out, const engine::Choice& choice) {
  fmt::format_to(std::back_inserter(out),
                 ",\"finish_reason\":\"{}\",\"stop_reason\":", finish_name(choice.finish_reason));
  if (const auto* id = std::get_if<std::int32_t>(&choice.stop_reason)) {
    out += std::to_string(*id);
  } else if (const auto* text = std::get_if<std::string>(&choice.stop_reason)) {
    append_json_string(out, *text);
  } else {
    out += "null";
  }
}

// What stands in front of the fields of either outcome.
void append_head(std::string& out, const std::string& id, const std::string& custom_id,
                 int status) {
  fmt::format_to(std::back_inserter(out), "{{\"id\":\"batch_req_{}\",\"custom_id\":", id);
  append_json_string(out, custom_id);
  fmt::format_to(std::back_inserter(out),
                 ",\"response\":{{\"status_code\":{},\"request_id\":\"{}\",\"body\":", status, id);
}

struct BodyWriter {
  const Record& record;
  const text::Tokenizer& tokenizer;
  std::string& out;

  LogprobStyle style(std::int64_t top) const {
    return {&tokenizer, top, record.sampling.show_special};
  }

  void chat_choice(const engine::Choice& choice) const {
    out += "\"message\":{\"role\":\"assistant\",\"content\":";
    append_json_string(out, choice.text);
    out += "},\"logprobs\":";
    if (record.output.logprobs) {
      append_chat_logprobs(out, choice.logprobs, style(record.output.top_logprobs));
    } else {
      out += "null";
    }
  }

  std::string echoed_text(std::size_t index, const TokenizedPrompt& prompt) const {
    if (!record.output.echo) return {};
    const CompletionPrompt& source = record.prompts[index];
    if (const auto* text = std::get_if<std::string>(&source)) {
      std::string marked = *text;
      for (std::size_t i = record.image_offsets.size(); i-- > 0;)
        marked.insert(record.image_offsets[i], kImageMarker);
      return marked;
    }
    text::Detokenizer detokenizer(tokenizer, record.sampling.show_special,
                                  text::DecodedText::kBegins);
    std::string decoded;
    for (const std::int32_t id : prompt.ids) decoded += detokenizer.push(id);
    return decoded + detokenizer.finish();
  }

  void completion_choice(std::size_t index, const TokenizedPrompt& prompt,
                         const engine::Answer& answer, const engine::Choice& choice) const {
    out += "\"text\":";
    const std::string echo = echoed_text(index, prompt);
    append_json_string(out, echo + choice.text);
    out += ",\"logprobs\":";
    if (record.output.logprobs) {
      EchoedPrompt echoed{{}, echo, record.sampling.show_special};
      if (record.output.echo) echoed.tokens = answer.prompt_logprobs;
      // A text does not show the start token that is put in front of it.
      if (std::holds_alternative<std::string>(record.prompts[index])) echoed.shows_special = false;
      append_completion_logprobs(out, echoed, choice.logprobs,
                                 text::text_behind(prompt.ids, tokenizer),
                                 style(record.output.top_logprobs));
    } else {
      out += "null";
    }
  }

  // vLLM has these two beside the choices for chat and inside each choice for completions.
  void prompt_fields(const TokenizedPrompt& prompt, const engine::Answer& answer) const {
    if (record.output.prompt_logprobs) {
      out += ",\"prompt_logprobs\":";
      append_prompt_logprobs(out, answer.prompt_logprobs, style(*record.output.prompt_logprobs));
    }
    if (record.output.return_token_ids) {
      out += ",\"prompt_token_ids\":";
      append_ids(out, prompt.ids);
    }
  }

  void choices(const std::vector<TokenizedPrompt>& prompts,
               const std::vector<engine::Answer>& answers) const {
    const bool chat = record.endpoint == Endpoint::kChat;
    std::int64_t index = 0;
    for (std::size_t p = 0; p < prompts.size(); ++p) {
      for (const engine::Choice& choice : answers[p].choices) {
        fmt::format_to(std::back_inserter(out), "{}{{\"index\":{},", index == 0 ? "" : ",", index);
        if (chat) {
          chat_choice(choice);
        } else {
          completion_choice(p, prompts[p], answers[p], choice);
        }
        append_stop(out, choice);
        if (!chat) prompt_fields(prompts[p], answers[p]);
        if (record.output.return_token_ids) {
          out += ",\"token_ids\":";
          append_ids(out, choice.token_ids);
        }
        out += '}';
        ++index;
      }
    }
  }

  void usage(const std::vector<TokenizedPrompt>& prompts,
             const std::vector<engine::Answer>& answers) const {
    std::size_t prompt_tokens = 0;
    std::size_t new_tokens = 0;
    for (std::size_t p = 0; p < prompts.size(); ++p) {
      prompt_tokens += prompts[p].ids.size();
      for (const engine::Choice& choice : answers[p].choices) new_tokens += choice.token_ids.size();
    }
    fmt::format_to(
        std::back_inserter(out),
        "\"usage\":{{\"prompt_tokens\":{},\"completion_tokens\":{},\"total_tokens\":{}}}",
        prompt_tokens, new_tokens, prompt_tokens + new_tokens);
  }
};

}  // namespace

ResponseWriter::ResponseWriter(const text::Tokenizer& tokenizer, std::string model_name,
                               std::string model_key)
    : tokenizer_(&tokenizer),
      model_name_(std::move(model_name)),
      model_key_(std::move(model_key)) {}

std::string ResponseWriter::answer_line(const Record& record,
                                        const std::vector<TokenizedPrompt>& prompts,
                                        const std::vector<engine::Answer>& answers) const {
  CARAVAN_ASSERT(prompts.size() == answers.size() && !prompts.empty(), "{} prompts, {} answers",
                 prompts.size(), answers.size());
  const bool chat = record.endpoint == Endpoint::kChat;
  const std::string id = content_id(model_key_, record.custom_id, record.content_hash);
  std::string out;
  append_head(out, id, record.custom_id, 200);
  fmt::format_to(std::back_inserter(out),
                 "{{\"id\":\"{}-{}\",\"object\":\"{}\",\"created\":0,\"model\":",
                 chat ? "chatcmpl" : "cmpl", id, chat ? "chat.completion" : "text_completion");
  append_json_string(out, model_name_);
  out += ",\"choices\":[";
  const BodyWriter body{record, *tokenizer_, out};
  body.choices(prompts, answers);
  out += "],";
  body.usage(prompts, answers);
  if (chat) body.prompt_fields(prompts.front(), answers.front());
  out += "}},\"error\":null}";
  return out;
}

std::string ResponseWriter::error_line(const std::string& custom_id, std::uint64_t content_hash,
                                       const RecordFault& fault) const {
  std::string out;
  append_head(out, content_id(model_key_, custom_id, content_hash), custom_id, fault.status);
  out += "null},\"error\":{\"code\":";
  append_json_string(out, fault.code);
  out += ",\"message\":";
  append_json_string(out, fault.message);
  fmt::format_to(std::back_inserter(out), ",\"type\":\"{}\",\"param\":",
                 fault.status >= 500 ? "server_error" : "invalid_request_error");
  if (fault.param.empty()) {
    out += "null";
  } else {
    append_json_string(out, fault.param);
  }
  out += "}}";
  return out;
}

bool is_error_line(std::string_view line) { return !line.ends_with("\"error\":null}"); }

}  // namespace caravan::batch
