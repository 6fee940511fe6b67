// Recognises the Jinja templates of the built-in formats by what they print: a template belongs to
// a format if a few conversations come out of both as the same text. One that does anything else
// is not guessed at.

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "caravan/core/error.h"
#include "caravan/core/log.h"
#include "caravan/text/chat_format.h"
#include "jinja_template.h"

namespace caravan::text {
namespace {

using Messages = std::vector<ChatMessage>;

constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 18;
constexpr std::string_view kImage = "<|image|>";
constexpr std::string_view kChatMlSystem = "<|im_start|>system\n", kChatMlEnd = "<|im_end|>";

/// What bos_token and eos_token are called where a format is at home.
struct Family {
  ChatFormatKind kind;
  const char* bos;
  const char* eos;
  bool prints_bos_once;  // some templates leave it to the tokenizer
};
constexpr Family kFamilies[] = {
    {ChatFormatKind::kLlama3, "<|begin_of_text|>", "<|eot_id|>", true},
    {ChatFormatKind::kLlama3Plain, "<|begin_of_text|>", "<|eot_id|>", true},
    {ChatFormatKind::kLlama31, "<|begin_of_text|>", "<|eot_id|>", true},
    {ChatFormatKind::kLlama32Vision, "<|begin_of_text|>", "<|eot_id|>", true},
    {ChatFormatKind::kChatMl, "<s>", "</s>", false},
    {ChatFormatKind::kLlama2, "<s>", "</s>", false},
    {ChatFormatKind::kZephyr, "<s>", "</s>", false},
};

/// A byte is a token, so that ids give back the very text that a format lays out.
TokenizerSpec spelling_spec(const Family& family) {
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kTiktoken;
  for (int byte = 0; byte < 256; ++byte) spec.tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* content : {"<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>",
                              "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>",
                              "<|image|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>"}) {
    AddedToken added;
    added.id = static_cast<std::int32_t>(spec.tokens.size());
    added.content = content;
    if (content == std::string_view(family.bos)) spec.bos_id = added.id;
    if (content == std::string_view(family.eos)) spec.eos_id = added.id;
    spec.tokens.emplace_back();
    spec.added_tokens.push_back(std::move(added));
  }
  return spec;
}

/// Conversations that tell layouts apart: with and without system text, white space at both ends,
/// several turns, an answer at the end, roles that do not alternate, thoughts in an answer, images.
std::vector<Messages> probes() {
  const ChatMessage system{"system", " You are 7 Robots.\n", {}};
  const ChatMessage question{"user", "\n What is it?  ", {}};
  const ChatMessage answer{"assistant", " An Apple, at last \n", {}};
  const ChatMessage thought{"assistant", "<think>so</think>A plain answer", {}};
  const ChatMessage more{"user", "And then, a b c d e f g?", {}};
  const ChatMessage shown{"user", "Look: or rather ", {}, {0, 6, 16}};
  return {{question},
          {system, more},
          {more, answer, question},
          {system, question, answer, more, thought, question},
          {system, question, answer},
          {more, question},
          {question, system, more},
          {shown, answer, shown}};
}

bool has_images(const Messages& messages) {
  return std::any_of(messages.begin(), messages.end(),
                     [](const ChatMessage& message) { return !message.image_offsets.empty(); });
}

/// Contents with images as lists of parts.
jinja::Value content_of(const ChatMessage& message) {
  if (message.image_offsets.empty()) return message.content;
  jinja::Value parts = jinja::Value::array();
  std::size_t begin = 0;
  const auto add_text = [&](std::size_t end) {
    const std::string text = message.content.substr(begin, end - begin);
    if (!text.empty()) parts.push_back({{"type", "text"}, {"text", text}});
    begin = end;
  };
  for (const std::size_t offset : message.image_offsets) {
    add_text(offset);
    parts.push_back({{"type", "image"}});
  }
  add_text(message.content.size());
  return parts;
}

jinja::Value json_of(const Messages& messages) {
  jinja::Value list = jinja::Value::array();
  for (const ChatMessage& message : messages) {
    list.push_back({{"role", message.role}, {"content", content_of(message)}});
  }
  return list;
}

/// What the built-in format lays out; empty where it refuses the conversation.
std::optional<std::string> laid_out(const ChatFormat& format, const Tokenizer& tokenizer,
                                    const Messages& messages, bool add_generation_prompt) {
  ChatOptions options;
  options.add_generation_prompt = add_generation_prompt;
  try {
    return tokenizer.decode_bytes(format.render(messages, options), true);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

class Recognition {
 public:
  Recognition(const jinja::Template& source, const Family& family)
      : source_(source), family_(family), tokenizer_(spelling_spec(family)) {}

  /// The default system text if the template prints what the format does, or nothing.
  std::optional<std::string> run() const {
    const std::string system = family_.kind == ChatFormatKind::kChatMl ? chatml_system() : "";
    const ChatFormat format(family_.kind, tokenizer_, system, tokenizer_.special_id(kImage));
    std::size_t compared = 0;
    for (const Messages& messages : probes()) {
      const auto with_prompt = laid_out(format, tokenizer_, messages, true);
      const auto without = laid_out(format, tokenizer_, messages, false);
      if (!with_prompt || (has_images(messages) && !prints_images(messages))) continue;
      const auto printed_with = printed(messages, true);
      const auto printed_without = printed(messages, false);
      if (!printed_with || !printed_without) continue;
      // The first template of Llama 3 prints the header of the answer whatever is asked.
      const bool same =
          is_same(*printed_with, *with_prompt) &&
          (is_same(*printed_without, *without) || is_same(*printed_without, *with_prompt));
      if (!same) return std::nullopt;
      ++compared;
    }
    return compared >= kLeastProbes ? std::optional(system) : std::nullopt;
  }

 private:
  static constexpr std::size_t kLeastProbes = 4;

  std::optional<std::string> printed(const Messages& messages, bool add_generation_prompt) const {
    const jinja::Value variables = {{"messages", json_of(messages)},
                                    {"bos_token", family_.bos},
                                    {"eos_token", family_.eos},
                                    {"add_generation_prompt", add_generation_prompt}};
    return source_.render(variables, ChatOptions{}.date);
  }

  /// A template that takes texts alone says nothing about images, or fails at lists of parts.
  bool prints_images(const Messages& messages) const {
    try {
      const auto text = printed(messages, true);
      return text && text->find(kImage) != std::string::npos;
    } catch (const InputError&) {
      return false;
    }
  }

  bool is_same(const std::string& printed, const std::string& expected) const {
    if (printed == expected) return true;
    const std::string_view bos = family_.bos;
    return family_.prints_bos_once && expected.starts_with(bos) &&
           printed == std::string_view(expected).substr(bos.size());
  }

  /// The system text that a ChatML template prints by itself.
  std::string chatml_system() const {
    const auto text = printed({{"user", "x", {}}}, true);
    if (!text || !text->starts_with(kChatMlSystem)) return {};
    const std::size_t end = text->find(kChatMlEnd);
    if (end == std::string::npos) return {};
    return text->substr(kChatMlSystem.size(), end - kChatMlSystem.size());
  }

  const jinja::Template& source_;
  const Family& family_;
  Tokenizer tokenizer_;
};

}  // namespace

std::optional<RecognisedTemplate> recognise_chat_template(const std::string& jinja) {
  if (jinja.empty()) return RecognisedTemplate{};
  try {
    CARAVAN_CHECK(jinja.size() <= kMaxTemplateBytes, InputError, "it has more than {} bytes",
                  kMaxTemplateBytes);
    const jinja::Template source(jinja);
    for (const Family& family : kFamilies) {
      if (const auto system = Recognition(source, family).run()) {
        return RecognisedTemplate{family.kind, *system};
      }
    }
  } catch (const InputError& error) {
    log::info("the chat template cannot be followed: {}", error.what());
  }
  return std::nullopt;
}

}  // namespace caravan::text
