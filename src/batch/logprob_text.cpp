#include "logprob_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "caravan/text/detokenizer.h"
#include "caravan/text/utf8.h"
#include "json_text.h"

namespace caravan::batch {
namespace {

using engine::TokenLogprob;

// What the token adds to the text.
std::string_view text_bytes(const LogprobStyle& style, std::int32_t id) {
  return style.tokenizer->token_bytes(id, style.show_special);
}

// What a reader sees of the token: special tokens by name.
std::string_view shown_bytes(const LogprobStyle& style, std::int32_t id) {
  return style.tokenizer->token_bytes(id, true);
}

// Name of a token in the completions form, where there is no field for raw bytes: pieces that are
// no text are written as OpenAI does, "bytes:\xe2\x82".
std::string piece_name(const LogprobStyle& style, std::int32_t id) {
  const std::string_view bytes = shown_bytes(style, id);
  if (!text::find_invalid_utf8(bytes)) return std::string(bytes);
  std::string name = "bytes:";
  for (const char c : bytes) {
    fmt::format_to(std::back_inserter(name), "\\x{:02x}", static_cast<unsigned char>(c));
  }
  return name;
}

std::span<const std::pair<std::int32_t, float>> best(const TokenLogprob& token,
                                                     const LogprobStyle& style) {
  const auto count = std::min(token.top.size(), static_cast<std::size_t>(style.top));
  return std::span(token.top).first(count);
}

void append_chat_token(std::string& out, std::int32_t id, float logprob,
                       const LogprobStyle& style) {
  out += "\"token\":";
  append_json_string(out, shown_bytes(style, id));
  out += ",\"logprob\":";
  append_json_float(out, logprob);
  out += ",\"bytes\":[";
  const std::string_view bytes = text_bytes(style, id);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    fmt::format_to(std::back_inserter(out), "{}{}", i == 0 ? "" : ",",
                   static_cast<unsigned char>(bytes[i]));
  }
  out += ']';
}

// The map of the best tokens; the chosen one is always in it.
void append_top_map(std::string& out, const TokenLogprob& token, const LogprobStyle& style) {
  std::vector<std::pair<std::int32_t, float>> shown(best(token, style).begin(),
                                                    best(token, style).end());
  const bool has_chosen = std::any_of(shown.begin(), shown.end(), [&](const auto& candidate) {
    return candidate.first == token.id;
  });
  if (!has_chosen) shown.emplace_back(token.id, token.logprob);
  out += '{';
  std::set<std::string> names;  // two ids may have one name; the better one keeps it
  for (const auto& [id, logprob] : shown) {
    const std::string name = piece_name(style, id);
    if (!names.insert(name).second) continue;
    if (names.size() > 1) out += ',';
    append_json_string(out, name);
    out += ':';
    append_json_float(out, logprob);
  }
  out += '}';
}

}  // namespace

void append_chat_logprobs(std::string& out, std::span<const TokenLogprob> tokens,
                          const LogprobStyle& style) {
  out += "{\"content\":[";
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    out += i == 0 ? "{" : ",{";
    append_chat_token(out, tokens[i].id, tokens[i].logprob, style);
    out += ",\"top_logprobs\":[";
    const auto top = best(tokens[i], style);
    for (std::size_t j = 0; j < top.size(); ++j) {
      out += j == 0 ? "{" : ",{";
      append_chat_token(out, top[j].first, top[j].second, style);
      out += '}';
    }
    out += "]}";
  }
  out += "]}";
}

void append_completion_logprobs(std::string& out, const EchoedPrompt& prompt,
                                std::span<const TokenLogprob> generated, text::DecodedText start,
                                const LogprobStyle& style) {
  std::string offsets;
  std::string values;
  std::string names;
  std::string tops;
  // The text is that of the prompt and then that of the generated tokens, each decoded for itself.
  text::Detokenizer of_prompt(*style.tokenizer, prompt.shows_special, text::DecodedText::kBegins);
  text::Detokenizer of_generated(*style.tokenizer, style.show_special, start);
  std::int64_t offset = 0;
  const auto add = [&](text::Detokenizer& detokenizer, const TokenLogprob& token, bool has_value) {
    const char* comma = names.empty() ? "" : ",";
    fmt::format_to(std::back_inserter(offsets), "{}{}", comma,
                   offset + detokenizer.characters_before(token.id));
    offset += text::count_characters(detokenizer.push(token.id));
    names += comma;
    values += comma;
    tops += comma;
    append_json_string(names, piece_name(style, token.id));
    if (!has_value) {
      values += "null";
      tops += "null";
      return;
    }
    append_json_float(values, token.logprob);
    append_top_map(tops, token, style);
  };
  for (std::size_t i = 0; i < prompt.tokens.size(); ++i) add(of_prompt, prompt.tokens[i], i > 0);
  offset = text::count_characters(prompt.text);
  for (const TokenLogprob& token : generated) add(of_generated, token, true);
  fmt::format_to(std::back_inserter(out),
                 "{{\"text_offset\":[{}],\"token_logprobs\":[{}],\"tokens\":[{}],\"top_logprobs\":["
                 "{}]}}",
                 offsets, values, names, tops);
}

void append_prompt_logprobs(std::string& out, std::span<const TokenLogprob> prompt,
                            const LogprobStyle& style) {
  out += '[';
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    if (i > 0) out += ',';
    if (i == 0) {
      out += "null";
      continue;
    }
    const auto top = best(prompt[i], style);
    bool has_own = false;
    out += '{';
    const auto add = [&](std::int32_t id, float logprob, const std::string& rank) {
      if (out.back() != '{') out += ',';
      fmt::format_to(std::back_inserter(out), "\"{}\":{{\"logprob\":", id);
      append_json_float(out, logprob);
      out += ",\"rank\":" + rank + ",\"decoded_token\":";
      append_json_string(out, shown_bytes(style, id));
      out += '}';
    };
    for (std::size_t j = 0; j < top.size(); ++j) {
      add(top[j].first, top[j].second, std::to_string(j + 1));
      has_own = has_own || top[j].first == prompt[i].id;
    }
    if (!has_own) add(prompt[i].id, prompt[i].logprob, "null");
    out += '}';
  }
  out += ']';
}

}  // namespace caravan::batch
