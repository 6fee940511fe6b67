// Recognises the Jinja templates of the built-in formats by the fixed texts that they print. A
// template that prints or does anything else is not guessed at.

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "caravan/text/chat_format.h"

namespace caravan::text {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool contains_all(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::all_of(parts.begin(), parts.end(),
                     [text](std::string_view part) { return contains(text, part); });
}

bool contains_any(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [text](std::string_view part) { return contains(text, part); });
}

/// The string literal that starts with the quote at `position`, unescaped; moves `position` behind
/// it.
std::string read_literal(std::string_view jinja, std::size_t& position) {
  const char quote = jinja[position++];
  std::string text;
  while (position < jinja.size() && jinja[position] != quote) {
    char c = jinja[position++];
    if (c == '\\' && position < jinja.size()) {
      c = jinja[position++];
      if (c == 'n') c = '\n';
      if (c == 't') c = '\t';
    }
    text.push_back(c);
  }
  if (position < jinja.size()) ++position;
  return text;
}

/// What a template can print literally: the text outside its tags, and the string literals inside.
std::vector<std::string> fixed_texts(std::string_view jinja) {
  std::vector<std::string> texts;
  std::size_t position = 0;
  while (position < jinja.size()) {
    std::size_t open = jinja.find('{', position);
    while (open != std::string_view::npos &&
           !(open + 1 < jinja.size() && contains("{%#", jinja.substr(open + 1, 1)))) {
      open = jinja.find('{', open + 1);
    }
    const std::size_t text_end = std::min(open, jinja.size());
    if (text_end > position) texts.emplace_back(jinja.substr(position, text_end - position));
    if (open == std::string_view::npos) break;
    if (jinja[open + 1] == '#') {
      const std::size_t end = jinja.find("#}", open + 2);
      position = end == std::string_view::npos ? jinja.size() : end + 2;
      continue;
    }
    const std::string_view close = jinja[open + 1] == '{' ? "}}" : "%}";
    position = open + 2;
    while (position < jinja.size() && jinja.substr(position, 2) != close) {
      if (jinja[position] == '\'' || jinja[position] == '"') {
        texts.push_back(read_literal(jinja, position));
      } else {
        ++position;
      }
    }
    position = std::min(position + 2, jinja.size());
  }
  return texts;
}

/// The system text that a ChatML template prints by itself, if any.
std::string chatml_default_system(const std::vector<std::string>& texts) {
  constexpr std::string_view kStart = "<|im_start|>system\n", kEnd = "<|im_end|>";
  for (const std::string& text : texts) {
    const std::size_t start = text.find(kStart);
    if (start == std::string::npos) continue;
    const std::size_t content = start + kStart.size();
    const std::size_t end = text.find(kEnd, content);
    if (end != std::string::npos) return text.substr(content, end - content);
  }
  return {};
}

}  // namespace

std::optional<RecognisedTemplate> recognise_chat_template(const std::string& jinja) {
  if (jinja.empty()) return RecognisedTemplate{};
  const std::vector<std::string> texts = fixed_texts(jinja);
  const auto prints = [&](std::string_view part) {
    return std::any_of(texts.begin(), texts.end(),
                       [part](const std::string& text) { return contains(text, part); });
  };
  if (contains_all(jinja, {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"})) {
    // Formats with images, and those that keep the white space of contents, are others.
    if (contains_any(jinja, {"<|image|>", "<|im_start|>"}) || !contains(jinja, "trim")) {
      return std::nullopt;
    }
    if (prints("Cutting Knowledge Date: December 2023\n") && prints("Today Date: ")) {
      return RecognisedTemplate{ChatFormatKind::kLlama31, {}};
    }
    if (prints("system<|end_header_id|>") || prints("Today Date")) return std::nullopt;
    return RecognisedTemplate{ChatFormatKind::kLlama3, {}};
  }
  if (contains_all(jinja, {"<|im_start|>", "<|im_end|>"})) {
    if (contains_any(jinja, {"bos_token", "trim", "strip(", "<think>", "enable_thinking"})) {
      return std::nullopt;
    }
    return RecognisedTemplate{ChatFormatKind::kChatMl, chatml_default_system(texts)};
  }
  return std::nullopt;
}

}  // namespace caravan::text
