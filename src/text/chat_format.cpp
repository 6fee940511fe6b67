#include "caravan/text/chat_format.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

#include "caravan/core/error.h"

namespace caravan::text {
namespace {

struct FormatName {
  ChatFormatKind kind;
  std::string_view name;
};
constexpr std::array<FormatName, 4> kFormatNames = {{
    {ChatFormatKind::kNone, "none"},
    {ChatFormatKind::kLlama3, "llama3"},
    {ChatFormatKind::kLlama31, "llama3.1"},
    {ChatFormatKind::kChatMl, "chatml"},
}};

/// The control tokens that `kind` cannot do without.
std::vector<std::string_view> control_tokens(ChatFormatKind kind) {
  switch (kind) {
    case ChatFormatKind::kNone: return {};
    case ChatFormatKind::kLlama3:
    case ChatFormatKind::kLlama31:
      return {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
    case ChatFormatKind::kChatMl: return {"<|im_start|>", "<|im_end|>"};
  }
  return {};
}

/// What Python's str.isspace accepts, which is what a template's `trim` removes.
bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

/// Length of the space character that `text` begins with, or 0. White space has at most three
/// bytes.
std::size_t leading_space(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<char32_t>(static_cast<unsigned char>(text[i])) : U'\0';
  };
  if (byte(0) < 0x80) return is_space(byte(0)) ? 1 : 0;
  if (byte(0) < 0xE0) return is_space((byte(0) & 0x1F) << 6 | (byte(1) & 0x3F)) ? 2 : 0;
  if (byte(0) >= 0xF0) return 0;
  return is_space((byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F)) ? 3 : 0;
}

std::string_view trim(std::string_view text) {
  while (const std::size_t length = leading_space(text)) text.remove_prefix(length);
  while (!text.empty()) {
    std::size_t start = text.size() - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    if (leading_space(text.substr(start)) != text.size() - start) break;
    text = text.substr(0, start);
  }
  return text;
}

/// As the templates' `tojson` writes a string.
std::string json_string(std::string_view text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception& error) {
    throw InputError(fmt::format("a tool message cannot be written as JSON: {}", error.what()));
  }
}

/// Collects ids. Text between two control tokens is one run and is encoded as a whole, as when the
/// rendered text is tokenized: header newlines may merge with what follows.
class PromptBuilder {
 public:
  explicit PromptBuilder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void control(std::string_view content) { control(tokenizer_.special_id(content).value()); }
  void control(std::int32_t id) {
    flush();
    ids_.push_back(id);
  }
  void text(std::string_view text) { run_.append(text); }
  std::vector<std::int32_t> take() {
    flush();
    return std::move(ids_);
  }

 private:
  void flush() {
    if (run_.empty()) return;
    const std::vector<std::int32_t> encoded = tokenizer_.encode(run_);
    ids_.insert(ids_.end(), encoded.begin(), encoded.end());
    run_.clear();
  }

  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> ids_;
  std::string run_;
};

bool is_system(const ChatMessage& message) {
  return message.role == "system" || message.role == "developer";
}

/// The name of a role in the format's header.
std::string_view header_role(ChatFormatKind kind, const ChatMessage& message, std::size_t index) {
  if (is_system(message)) return "system";
  if (message.role == "user" || message.role == "assistant") return message.role;
  if (kind == ChatFormatKind::kChatMl) {
    throw InputError(fmt::format(
        "messages[{}]: role \"{}\" does not exist in the chat format chatml (roles: system, "
        "developer, user, assistant)",
        index, message.role));
  }
  CARAVAN_CHECK(
      message.role == "tool" || message.role == "ipython", InputError,
      "messages[{}]: unknown role \"{}\" (roles: system, developer, user, assistant, tool)", index,
      message.role);
  return "ipython";
}

void check_request(const std::vector<ChatMessage>& messages, const ChatOptions& options) {
  CARAVAN_CHECK(!messages.empty(), InputError, "messages: the list is empty");
  if (!options.continue_final_message) return;
  CARAVAN_CHECK(!options.add_generation_prompt, InputError,
                "continue_final_message and add_generation_prompt exclude each other");
  CARAVAN_CHECK(messages.back().role == "assistant", InputError,
                "continue_final_message: the last message must be from \"assistant\", but its role "
                "is \"{}\"",
                messages.back().role);
}

void start_llama_turn(PromptBuilder& prompt, std::string_view role) {
  prompt.control("<|start_header_id|>");
  prompt.text(role);
  prompt.control("<|end_header_id|>");
  prompt.text("\n\n");
}

std::vector<std::int32_t> render_llama(ChatFormatKind kind, const Tokenizer& tokenizer,
                                       const std::vector<ChatMessage>& messages,
                                       const ChatOptions& options) {
  PromptBuilder prompt(tokenizer);
  if (tokenizer.spec().bos_id) {
    prompt.control(*tokenizer.spec().bos_id);
  } else {
    prompt.control("<|begin_of_text|>");
  }
  std::size_t next = 0;
  if (kind == ChatFormatKind::kLlama31) {
    start_llama_turn(prompt, "system");
    prompt.text("Cutting Knowledge Date: December 2023\nToday Date: ");
    prompt.text(options.date);
    prompt.text("\n\n");
    if (is_system(messages.front())) {
      prompt.text(trim(messages.front().content));
      next = 1;
    }
    prompt.control("<|eot_id|>");
  }
  for (; next < messages.size(); ++next) {
    const ChatMessage& message = messages[next];
    const std::string_view role = header_role(kind, message, next);
    start_llama_turn(prompt, role);
    if (role == "ipython" && kind == ChatFormatKind::kLlama31) {
      prompt.text(json_string(message.content));
    } else {
      prompt.text(trim(message.content));
    }
    const bool stays_open = options.continue_final_message && next + 1 == messages.size();
    if (!stays_open) prompt.control("<|eot_id|>");
  }
  if (options.add_generation_prompt) start_llama_turn(prompt, "assistant");
  return prompt.take();
}

std::vector<std::int32_t> render_chatml(const Tokenizer& tokenizer,
                                        const std::string& default_system,
                                        const std::vector<ChatMessage>& messages,
                                        const ChatOptions& options) {
  PromptBuilder prompt(tokenizer);
  const auto start = [&](std::string_view role) {
    prompt.control("<|im_start|>");
    prompt.text(role);
    prompt.text("\n");
  };
  const auto end = [&] {
    prompt.control("<|im_end|>");
    prompt.text("\n");
  };
  if (!default_system.empty() && !is_system(messages.front())) {
    start("system");
    prompt.text(default_system);
    end();
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    start(header_role(ChatFormatKind::kChatMl, messages[i], i));
    prompt.text(messages[i].content);
    const bool stays_open = options.continue_final_message && i + 1 == messages.size();
    if (!stays_open) end();
  }
  if (options.add_generation_prompt) start("assistant");
  return prompt.take();
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

ChatFormat::ChatFormat(ChatFormatKind kind, const Tokenizer& tokenizer, std::string default_system)
    : kind_(kind), tokenizer_(&tokenizer), default_system_(std::move(default_system)) {
  for (const std::string_view content : control_tokens(kind)) {
    CARAVAN_CHECK(
        tokenizer.special_id(content), ConfigError,
        "chat format {} needs the control token \"{}\", which this tokenizer does not have",
        chat_format_name(kind), content);
  }
}

std::vector<std::int32_t> ChatFormat::render(const std::vector<ChatMessage>& messages,
                                             const ChatOptions& options) const {
  check_request(messages, options);
  switch (kind_) {
    case ChatFormatKind::kNone:
      throw InputError(
          "this model has no chat format (it is a base model, or its template is not known): send "
          "completion requests, or choose a format with --chat-format");
    case ChatFormatKind::kLlama3:
    case ChatFormatKind::kLlama31: return render_llama(kind_, *tokenizer_, messages, options);
    case ChatFormatKind::kChatMl:
      return render_chatml(*tokenizer_, default_system_, messages, options);
  }
  return {};
}

std::vector<std::int32_t> ChatFormat::stop_ids() const {
  std::vector<std::string_view> contents;
  switch (kind_) {
    case ChatFormatKind::kNone: break;
    case ChatFormatKind::kLlama3: contents = {"<|eot_id|>", "<|end_of_text|>"}; break;
    case ChatFormatKind::kLlama31:
      contents = {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"};
      break;
    case ChatFormatKind::kChatMl: contents = {"<|im_end|>"}; break;
  }
  std::vector<std::int32_t> ids;
  for (const std::string_view content : contents) {
    if (const auto id = tokenizer_->special_id(content)) ids.push_back(*id);
  }
  return ids;
}

}  // namespace caravan::text
