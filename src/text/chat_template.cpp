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

/// A template taken apart: what it can print literally, and its text in one spelling (no white
/// space inside tags outside of literals, literals in single quotes with their escapes undone).
struct ReadTemplate {
  std::vector<std::string> texts;  // outside tags, and string literals inside them
  std::string canonical;
};

/// Reads the tag that starts at `position` up to its `close`; moves `position` behind it.
void read_tag(std::string_view jinja, std::string_view close, std::size_t& position,
              ReadTemplate& result) {
  while (position < jinja.size() && jinja.substr(position, 2) != close) {
    const char c = jinja[position];
    if (c == '\'' || c == '"') {
      result.texts.push_back(read_literal(jinja, position));
      result.canonical += "'" + result.texts.back() + "'";
      continue;
    }
    if (!contains(" \t\r\n", jinja.substr(position, 1))) result.canonical.push_back(c);
    ++position;
  }
  if (position < jinja.size()) result.canonical.append(close);
  position = std::min(position + 2, jinja.size());
}

/// Where the next tag ("{{", "{%" or "{#") begins, or npos.
std::size_t next_tag(std::string_view jinja, std::size_t position) {
  std::size_t open = jinja.find('{', position);
  while (open != std::string_view::npos &&
         !(open + 1 < jinja.size() && contains("{%#", jinja.substr(open + 1, 1)))) {
    open = jinja.find('{', open + 1);
  }
  return open;
}

ReadTemplate read_template(std::string_view jinja) {
  ReadTemplate result;
  std::size_t position = 0;
  while (position < jinja.size()) {
    const std::size_t open = next_tag(jinja, position);
    const std::size_t text_end = std::min(open, jinja.size());
    if (text_end > position) {
      result.texts.emplace_back(jinja.substr(position, text_end - position));
      result.canonical += result.texts.back();
    }
    if (open == std::string_view::npos) break;
    if (jinja[open + 1] == '#') {
      const std::size_t end = jinja.find("#}", open + 2);
      position = end == std::string_view::npos ? jinja.size() : end + 2;
      continue;
    }
    result.canonical.append(jinja.substr(open, 2));
    position = open + 2;
    read_tag(jinja, jinja[open + 1] == '{' ? "}}" : "%}", position, result);
  }
  return result;
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

/// Behind each `end` there is a newline, as all tags of the Zephyr layout are followed by one.
bool lines_end_behind(std::string_view text, std::string_view end) {
  std::size_t found = text.find(end);
  if (found == std::string_view::npos) return false;
  for (; found != std::string_view::npos; found = text.find(end, found + 1)) {
    if (text.substr(found + end.size(), 1) != "\n") return false;
  }
  return true;
}

bool is_llama2(const ReadTemplate& read) {
  const std::string& jinja = read.canonical;
  // A default system text of its own would have to be printed; none of the known ones has it.
  if (contains_any(jinja, {"You are", "<|"})) return false;
  return contains(jinja, "'<<SYS>>\n'+system_message+'\n<</SYS>>\n\n'+message['content']") &&
         contains_any(jinja, {"bos_token+'[INST] '+content.strip()+' [/INST]'",
                              "bos_token+'[INST] '+content|trim+' [/INST]'"}) &&
         contains_any(jinja,
                      {"' '+content.strip()+' '+eos_token", "' '+content|trim+' '+eos_token"});
}

bool is_zephyr(const ReadTemplate& read) {
  const std::string& jinja = read.canonical;
  if (contains_any(jinja, {"bos_token", "trim", "strip(", "<<SYS>>", "[INST]", "<|im_"}))
    return false;
  return contains_all(jinja, {"'<|user|>\n'+message['content']+eos_token",
                              "'<|system|>\n'+message['content']+eos_token",
                              "'<|assistant|>\n'+message['content']+eos_token"}) &&
         lines_end_behind(jinja, "eos_token}}") && lines_end_behind(jinja, "'<|assistant|>'}}");
}

/// Of the templates with Llama 3's headers.
std::optional<ChatFormatKind> llama3_kind(const ReadTemplate& read) {
  const auto prints = [&](std::string_view part) {
    return std::any_of(read.texts.begin(), read.texts.end(),
                       [part](const std::string& text) { return contains(text, part); });
  };
  const std::string& jinja = read.canonical;
  const bool has_system_block =
      prints("Cutting Knowledge Date: December 2023\n") && prints("Today Date: ");
  if (!contains(jinja, "trim") || contains(jinja, "<|im_start|>")) return std::nullopt;
  if (contains(jinja, "<|image|>")) {
    // Without images there is a system block, and contents are printed as they are.
    const bool is_vision = has_system_block && contains(jinja, "has_images") &&
                           contains_all(jinja, {"content['text']}}", "message['content']}}"});
    if (is_vision) return ChatFormatKind::kLlama32Vision;
    return std::nullopt;
  }
  if (has_system_block) return ChatFormatKind::kLlama31;
  if (prints("system<|end_header_id|>") || prints("Today Date")) return std::nullopt;
  return ChatFormatKind::kLlama3;
}

}  // namespace

std::optional<RecognisedTemplate> recognise_chat_template(const std::string& jinja) {
  if (jinja.empty()) return RecognisedTemplate{};
  const ReadTemplate read = read_template(jinja);
  if (contains_all(read.canonical, {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"})) {
    const auto kind = llama3_kind(read);
    if (!kind) return std::nullopt;
    return RecognisedTemplate{*kind, {}};
  }
  if (contains_all(read.canonical, {"<|im_start|>", "<|im_end|>"})) {
    if (contains_any(read.canonical,
                     {"bos_token", "trim", "strip(", "<think>", "enable_thinking"})) {
      return std::nullopt;
    }
    return RecognisedTemplate{ChatFormatKind::kChatMl, chatml_default_system(read.texts)};
  }
  if (is_llama2(read)) return RecognisedTemplate{ChatFormatKind::kLlama2, {}};
  if (is_zephyr(read)) return RecognisedTemplate{ChatFormatKind::kZephyr, {}};
  return std::nullopt;
}

}  // namespace caravan::text
