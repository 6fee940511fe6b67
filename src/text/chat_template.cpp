// Recognises the Jinja templates of the built-in formats by what they print: a template belongs to
// a format if conversations come out of both as the same text. One that does anything else, or
// refuses what the format takes, is not guessed at.

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "caravan/core/error.h"
#include "caravan/core/log.h"
#include "caravan/text/chat_format.h"
#include "chat_probes.h"
#include "jinja_template.h"

namespace caravan::text {
namespace {

constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 18;
constexpr std::string_view kImage = "<|image|>";
constexpr std::string_view kChatMlSystem = "<|im_start|>system\n", kChatMlEnd = "<|im_end|>";

constexpr const char* kOtherDate = "01 Jan 1970";
constexpr std::string_view kBeginOfText = "<|begin_of_text|>";
constexpr std::array kKinds = {ChatFormatKind::kLlama3,  ChatFormatKind::kLlama3Plain,
                               ChatFormatKind::kLlama31, ChatFormatKind::kLlama32Vision,
                               ChatFormatKind::kChatMl,  ChatFormatKind::kChatMlBos,
                               ChatFormatKind::kLlama2,  ChatFormatKind::kZephyr};

std::optional<std::string> content_of(const TokenizerSpec& spec, std::optional<std::int32_t> id) {
  if (!id) return std::nullopt;
  for (const AddedToken& added : spec.added_tokens) {
    if (added.id == *id) return added.content;
  }
  const auto index = static_cast<std::size_t>(*id);
  if (*id < 0 || index >= spec.tokens.size()) return std::nullopt;
  return spec.tokens[index];
}

std::vector<std::string> special_contents(const TokenizerSpec& spec) {
  std::vector<std::string> contents;
  for (const AddedToken& added : spec.added_tokens) {
    if (added.special && !added.content.empty()) contents.push_back(added.content);
  }
  return contents;
}

/// A byte is a token, so that ids give back the very text that a format lays out. The control
/// tokens are those of the source, and those without which a format could not be tried.
TokenizerSpec spelling_spec(const TokenizerSpec& source) {
  std::vector<std::string> contents = special_contents(source);
  const auto bos = content_of(source, source.bos_id), eos = content_of(source, source.eos_id);
  for (const auto& content : {bos, eos}) {
    if (content && !content->empty()) contents.push_back(*content);
  }
  for (const std::string_view content :
       {kBeginOfText, std::string_view("<|start_header_id|>"),
        std::string_view("<|end_header_id|>"), std::string_view("<|eot_id|>"), kImage,
        std::string_view("<|im_start|>"), kChatMlEnd}) {
    contents.emplace_back(content);
  }
  std::sort(contents.begin(), contents.end());
  contents.erase(std::unique(contents.begin(), contents.end()), contents.end());

  TokenizerSpec spec;
  spec.kind = TokenizerKind::kTiktoken;
  for (int byte = 0; byte < 256; ++byte) spec.tokens.emplace_back(1, static_cast<char>(byte));
  for (const std::string& content : contents) {
    AddedToken added;
    added.id = static_cast<std::int32_t>(spec.tokens.size());
    added.content = content;
    if (bos == content) spec.bos_id = added.id;
    if (eos == content) spec.eos_id = added.id;
    spec.tokens.emplace_back();
    spec.added_tokens.push_back(std::move(added));
  }
  return spec;
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

/// The role of tools is for templates that know tools; others may refuse it.
bool names_tool(const Messages& messages) { return messages.back().role == "ipython"; }

bool mentions(const Messages& messages, const std::string& text) {
  return std::any_of(messages.begin(), messages.end(), [&](const ChatMessage& message) {
    return message.content.find(text) != std::string::npos;
  });
}

/// One template against the built-in formats, with the control tokens of its source.
class Recognition {
 public:
  Recognition(const jinja::Template& source, const std::string& text, const TokenizerSpec& spec)
      : source_(source),
        asks_clock_(text.find("strftime_now") != std::string::npos),
        specials_(special_contents(spec)),
        bos_(content_of(spec, spec.bos_id)),
        eos_(content_of(spec, spec.eos_id)),
        tokenizer_(spelling_spec(spec)),
        probes_(layout_probes()) {}

  /// The default system text if the template prints what the format does, or nothing.
  std::optional<std::string> run(ChatFormatKind kind) const {
    std::string system;
    if (kind == ChatFormatKind::kChatMl || kind == ChatFormatKind::kChatMlBos) {
      system = chatml_system(kind, ChatOptions{}.date);
      // One that tells the date is not the same tomorrow.
      if (chatml_system(kind, kOtherDate) != system) return std::nullopt;
    }
    try {
      const ChatFormat format(kind, tokenizer_, system, tokenizer_.special_id(kImage));
      for (const Messages& messages : probes_) {
        if (!is_same(format, messages)) return std::nullopt;
      }
    } catch (const ConfigError&) {  // the source has no BOS or EOS, which the format needs
      return std::nullopt;
    }
    return system;
  }

 private:
  struct LaidOut {
    std::string text;
    bool is_faithful;  // what the source knows as control tokens are control tokens
  };

  /// Whether both lay the conversation out alike, or the format refuses it.
  bool is_same(const ChatFormat& format, const Messages& messages) const {
    const bool has_tool_form = format.kind() == ChatFormatKind::kLlama31 ||
                               format.kind() == ChatFormatKind::kLlama32Vision;
    if (has_tool_form && names_tool(messages)) return true;  // always the models' own
    const auto with_prompt = laid_out(format, messages, true);
    const auto without = laid_out(format, messages, false);
    if (!with_prompt || !without || (has_images(messages) && !has_image_form())) return true;
    if (!with_prompt->is_faithful) return false;
    const auto printed_with = printed(messages, true);
    const auto printed_without = printed(messages, false);
    if (!printed_with || !printed_without) return names_tool(messages);
    if (asks_clock_ && !is_same_later(format, messages, *printed_with)) return false;
    // The first template of Llama 3 prints the header of the answer whatever is asked.
    return is_same(format.kind(), *printed_with, with_prompt->text) &&
           (is_same(format.kind(), *printed_without, without->text) ||
            is_same(format.kind(), *printed_without, with_prompt->text));
  }

  /// On another day the format has the date that it is given, or the template always the same.
  bool is_same_later(const ChatFormat& format, const Messages& messages,
                     const std::string& now) const {
    const auto later = printed(messages, true, kOtherDate);
    const auto expected = laid_out(format, messages, true, kOtherDate);
    return later && (*later == now || (expected && is_same(format.kind(), *later, expected->text)));
  }

  /// What the built-in format lays out; empty where it refuses the conversation.
  std::optional<LaidOut> laid_out(const ChatFormat& format, const Messages& messages,
                                  bool add_generation_prompt,
                                  const std::string& date = ChatOptions{}.date) const {
    ChatOptions options;
    options.date = date;
    options.add_generation_prompt = add_generation_prompt;
    std::vector<std::int32_t> ids;
    try {
      ids = format.render(messages, options);
    } catch (const InputError&) {
      return std::nullopt;
    }
    std::string plain;  // NUL where a control token stands
    for (const std::int32_t id : ids) {
      plain += tokenizer_.is_special(id) ? std::string(1, '\0')
                                         : std::string(tokenizer_.token_bytes(id));
    }
    const bool spelled =
        std::any_of(specials_.begin(), specials_.end(), [&](const std::string& special) {
          return plain.find(special) != std::string::npos && !mentions(messages, special);
        });
    return LaidOut{tokenizer_.decode_bytes(ids, true), !spelled};
  }

  std::optional<std::string> printed(const Messages& messages, bool add_generation_prompt,
                                     const std::string& date = ChatOptions{}.date) const {
    jinja::Value variables = {{"messages", json_of(messages)},
                              {"tools", nullptr},
                              {"documents", nullptr},
                              {"add_generation_prompt", add_generation_prompt}};
    if (bos_) variables["bos_token"] = *bos_;
    if (eos_) variables["eos_token"] = *eos_;
    return source_.render(variables, date);
  }

  /// One for texts alone says nothing about images. Asked once texts are known to be the same, so
  /// that a template without end is not run for each of them.
  bool has_image_form() const {
    if (!has_image_form_) {
      has_image_form_ = std::any_of(probes_.begin(), probes_.end(), [this](const auto& messages) {
        return has_images(messages) && prints_images(messages);
      });
    }
    return *has_image_form_;
  }

  /// A template that takes texts alone leaves images out, or fails at lists of parts.
  bool prints_images(const Messages& messages) const {
    try {
      const auto text = printed(messages, true);
      return text && text->find(kImage) != std::string::npos;
    } catch (const InputError&) {
      return false;
    }
  }

  bool is_same(ChatFormatKind kind, const std::string& printed, const std::string& expected) const {
    if (printed == expected) return true;
    const bool may_lack_bos = kind == ChatFormatKind::kLlama3 ||
                              kind == ChatFormatKind::kLlama3Plain ||
                              kind == ChatFormatKind::kLlama31 ||
                              kind == ChatFormatKind::kLlama32Vision;  // left to the tokenizer
    const std::string bos = bos_.value_or(std::string(kBeginOfText));
    return may_lack_bos && expected.starts_with(bos) && printed == expected.substr(bos.size());
  }

  /// The system text that a ChatML template prints by itself.
  std::string chatml_system(ChatFormatKind kind, const std::string& date) const {
    const auto text = printed({{"user", "x", {}}}, true, date);
    const std::string start =
        (kind == ChatFormatKind::kChatMlBos ? bos_.value_or("") : "") + std::string(kChatMlSystem);
    if (!text || !text->starts_with(start)) return {};
    const std::size_t end = text->find(kChatMlEnd, start.size());
    if (end == std::string::npos) return {};
    return text->substr(start.size(), end - start.size());
  }

  const jinja::Template& source_;
  bool asks_clock_;
  std::vector<std::string> specials_;
  std::optional<std::string> bos_, eos_;
  Tokenizer tokenizer_;
  std::vector<Messages> probes_;
  mutable std::optional<bool> has_image_form_;
};

}  // namespace

std::optional<RecognisedTemplate> recognise_chat_template(const std::string& jinja,
                                                          const TokenizerSpec& tokenizer) {
  if (jinja.empty()) return RecognisedTemplate{};
  try {
    CARAVAN_CHECK(jinja.size() <= kMaxTemplateBytes, InputError, "it has more than {} bytes",
                  kMaxTemplateBytes);
    const jinja::Template source(jinja);
    const Recognition recognition(source, jinja, tokenizer);
    for (const ChatFormatKind kind : kKinds) {
      if (const auto system = recognition.run(kind)) return RecognisedTemplate{kind, *system};
    }
  } catch (const InputError& error) {
    log::info("the chat template cannot be followed: {}", error.what());
  }
  return std::nullopt;
}

}  // namespace caravan::text
