#include "caravan/text/chat_format.h"

#include <algorithm>
#include <array>

#include "caravan/core/error.h"
#include "chat_layouts.h"

namespace caravan::text {
namespace {

struct FormatName {
  ChatFormatKind kind;
  std::string_view name;
};
constexpr std::array<FormatName, 9> kFormatNames = {{
    {ChatFormatKind::kNone, "none"},
    {ChatFormatKind::kLlama2, "llama2"},
    {ChatFormatKind::kLlama3, "llama3"},
    {ChatFormatKind::kLlama3Plain, "llama3-plain"},
    {ChatFormatKind::kLlama31, "llama3.1"},
    {ChatFormatKind::kLlama32Vision, "llama3.2-vision"},
    {ChatFormatKind::kChatMl, "chatml"},
    {ChatFormatKind::kChatMlBos, "chatml-bos"},
    {ChatFormatKind::kZephyr, "zephyr"},
}};

/// The control tokens that `kind` cannot do without.
std::vector<std::string_view> control_tokens(ChatFormatKind kind) {
  switch (kind) {
    case ChatFormatKind::kLlama3:
    case ChatFormatKind::kLlama3Plain:
    case ChatFormatKind::kLlama31:
    case ChatFormatKind::kLlama32Vision:
      return {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
    case ChatFormatKind::kChatMl:
    case ChatFormatKind::kChatMlBos: return {"<|im_start|>", "<|im_end|>"};
    case ChatFormatKind::kNone:
    case ChatFormatKind::kLlama2:
    case ChatFormatKind::kZephyr: return {};  // BOS and EOS, whatever they are called
  }
  return {};
}

bool needs_bos(ChatFormatKind kind) {
  return kind == ChatFormatKind::kLlama2 || kind == ChatFormatKind::kChatMlBos;
}

bool needs_eos(ChatFormatKind kind) {
  return kind == ChatFormatKind::kLlama2 || kind == ChatFormatKind::kZephyr;
}

void check_tools(ChatFormatKind kind, const Messages& messages, const ChatOptions& options) {
  const std::string_view name = chat_format_name(kind);
  const bool calls = std::any_of(messages.begin(), messages.end(), [](const ChatMessage& message) {
    return !message.tool_calls.empty();
  });
  const bool has_tools = kind == ChatFormatKind::kLlama31 || kind == ChatFormatKind::kLlama32Vision;
  CARAVAN_CHECK(has_tools || (!calls && options.tools.empty()), InputError,
                "tools: the chat format {} has no tools and no tool calls", name);
  CARAVAN_CHECK(kind == ChatFormatKind::kLlama31 || options.builtin_tools.empty(), InputError,
                "builtin_tools: the chat format {} has none", name);
}

void check_images(const ChatFormat& format, const Messages& messages) {
  const bool has_images = format.kind() == ChatFormatKind::kLlama32Vision ||
                          format.kind() == ChatFormatKind::kLlama3Plain;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (message.image_offsets.empty()) continue;
    CARAVAN_CHECK(has_images, InputError, "messages[{}].content: the chat format {} has no images",
                  i, chat_format_name(format.kind()));
    CARAVAN_CHECK(format.image_id(), InputError,
                  "messages[{}].content: the model has no token for an image", i);
    CARAVAN_CHECK(message.role == "user", InputError,
                  "messages[{}].content: images belong into messages of the user, the role is "
                  "\"{}\"",
                  i, message.role);
  }
}

void check_request(const ChatFormat& format, const Messages& messages, const ChatOptions& options) {
  const ChatFormatKind kind = format.kind();
  CARAVAN_CHECK(kind != ChatFormatKind::kNone, InputError,
                "this model has no chat format (it is a base model, or its template is not known): "
                "send completion requests, or choose a format with --chat-format");
  CARAVAN_CHECK(!messages.empty(), InputError, "messages: the list is empty");
  check_tools(kind, messages, options);
  check_images(format, messages);
  if (!options.continue_final_message) return;
  CARAVAN_CHECK(!options.add_generation_prompt, InputError,
                "continue_final_message and add_generation_prompt exclude each other");
  CARAVAN_CHECK(messages.back().role == "assistant", InputError,
                "continue_final_message: the last message must be from \"assistant\", but its role "
                "is \"{}\"",
                messages.back().role);
}

PromptParts lay_out(const ChatFormat& format, const Tokenizer& tokenizer, const Messages& messages,
                    const ChatOptions& options) {
  check_request(format, messages, options);
  PromptParts prompt(tokenizer);
  switch (format.kind()) {
    case ChatFormatKind::kNone: break;
    case ChatFormatKind::kLlama3:
    case ChatFormatKind::kLlama3Plain:
    case ChatFormatKind::kLlama31:
    case ChatFormatKind::kLlama32Vision: lay_out_llama3(format, messages, options, prompt); break;
    case ChatFormatKind::kChatMl:
    case ChatFormatKind::kChatMlBos: lay_out_chatml(format, messages, options, prompt); break;
    case ChatFormatKind::kLlama2: lay_out_llama2(messages, options, prompt); break;
    case ChatFormatKind::kZephyr: lay_out_zephyr(messages, options, prompt); break;
  }
  return prompt;
}

}  // namespace

std::string_view chat_format_name(ChatFormatKind kind) {
  const auto found = std::find_if(kFormatNames.begin(), kFormatNames.end(),
                                  [kind](const FormatName& entry) { return entry.kind == kind; });
  CARAVAN_ASSERT(found != kFormatNames.end(), "chat format {} has no name", static_cast<int>(kind));
  return found->name;
}

std::optional<ChatFormatKind> parse_chat_format(std::string_view name) {
  for (const FormatName& entry : kFormatNames) {
    if (entry.name == name) return entry.kind;
  }
  return std::nullopt;
}

std::vector<ChatFormatKind> chat_format_kinds() {
  std::vector<ChatFormatKind> kinds;
  for (const FormatName& entry : kFormatNames) kinds.push_back(entry.kind);
  return kinds;
}

std::string chat_format_names() {
  std::vector<std::string_view> names;
  for (const FormatName& entry : kFormatNames) names.push_back(entry.name);
  return fmt::format("{}", fmt::join(names, "|"));
}

std::string missing_bos_warning(ChatFormatKind kind) {
  return fmt::format(
      "prompts of the chat format {} begin without BOS, but this tokenizer puts it before text; "
      "the format {} is the same with BOS",
      chat_format_name(kind), chat_format_name(ChatFormatKind::kChatMlBos));
}

ChatFormat::ChatFormat(ChatFormatKind kind, const Tokenizer& tokenizer, std::string default_system,
                       std::optional<std::int32_t> image_id)
    : kind_(kind),
      tokenizer_(&tokenizer),
      default_system_(std::move(default_system)),
      image_id_(image_id) {
  for (const std::string_view content : control_tokens(kind)) {
    CARAVAN_CHECK(
        tokenizer.special_id(content), ConfigError,
        "chat format {} needs the control token \"{}\", which this tokenizer does not have",
        chat_format_name(kind), content);
  }
  CARAVAN_CHECK(!needs_bos(kind) || tokenizer.spec().bos_id, ConfigError,
                "chat format {} needs a BOS token, which this tokenizer does not have",
                chat_format_name(kind));
  CARAVAN_CHECK(!needs_eos(kind) || tokenizer.spec().eos_id, ConfigError,
                "chat format {} needs an EOS token, which this tokenizer does not have",
                chat_format_name(kind));
}

bool ChatFormat::leaves_out_bos() const {
  return kind_ == ChatFormatKind::kChatMl && tokenizer_->spec().add_bos;
}

std::vector<std::int32_t> ChatFormat::render(const std::vector<ChatMessage>& messages,
                                             const ChatOptions& options) const {
  return lay_out(*this, *tokenizer_, messages, options).encode();
}

std::int64_t ChatFormat::most_tokens(const std::vector<ChatMessage>& messages,
                                     const ChatOptions& options) const {
  return lay_out(*this, *tokenizer_, messages, options).most_tokens();
}

std::vector<std::int32_t> ChatFormat::stop_ids() const {
  std::vector<std::string_view> contents;
  switch (kind_) {
    case ChatFormatKind::kNone: break;
    case ChatFormatKind::kLlama3:
    case ChatFormatKind::kLlama3Plain: contents = {"<|eot_id|>", "<|end_of_text|>"}; break;
    case ChatFormatKind::kLlama31:
    case ChatFormatKind::kLlama32Vision:
      contents = {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"};
      break;
    case ChatFormatKind::kChatMl:
    case ChatFormatKind::kChatMlBos: contents = {"<|im_end|>"}; break;
    case ChatFormatKind::kLlama2:
    case ChatFormatKind::kZephyr: return {tokenizer_->spec().eos_id.value()};
  }
  std::vector<std::int32_t> ids;
  for (const std::string_view content : contents) {
    if (const auto id = tokenizer_->special_id(content)) ids.push_back(*id);
  }
  return ids;
}

}  // namespace caravan::text
