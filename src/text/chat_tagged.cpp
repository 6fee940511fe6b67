// Layouts that write a role, a newline and the content as it is: ChatML and Zephyr.

#include "caravan/core/error.h"
#include "chat_layouts.h"

namespace caravan::text {

std::string_view plain_role(ChatFormatKind kind, const ChatMessage& message, std::size_t index) {
  if (is_system(message)) return "system";
  CARAVAN_CHECK(message.role == "user" || message.role == "assistant", InputError,
                "messages[{}]: role \"{}\" does not exist in the chat format {} (roles: system, "
                "developer, user, assistant)",
                index, message.role, chat_format_name(kind));
  return message.role;
}

void lay_out_chatml(const ChatFormat& format, const Messages& messages, const ChatOptions& options,
                    PromptParts& prompt) {
  const auto start = [&](std::string_view role) {
    prompt.control("<|im_start|>");
    prompt.text(role);
    prompt.text("\n");
  };
  const auto end = [&] {
    prompt.control("<|im_end|>");
    prompt.text("\n");
  };
  if (format.kind() == ChatFormatKind::kChatMlBos)
    prompt.control(prompt.tokenizer().spec().bos_id.value());
  if (!format.default_system().empty() && !is_system(messages.front())) {
    start("system");
    prompt.text(format.default_system());
    end();
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    start(plain_role(format.kind(), messages[i], i));
    prompt.text(messages[i].content);
    if (!stays_open(messages, options, i)) end();
  }
  if (options.add_generation_prompt) start("assistant");
}

void lay_out_zephyr(const Messages& messages, const ChatOptions& options, PromptParts& prompt) {
  const TokenizerSpec& spec = prompt.tokenizer().spec();
  // The template itself writes no BOS: it comes with the tokenizer, as before raw text.
  if (spec.add_bos) prompt.control(spec.bos_id.value());
  const auto start = [&](std::string_view role) {
    prompt.text("<|");
    prompt.text(role);
    prompt.text("|>\n");
  };
  for (std::size_t i = 0; i < messages.size(); ++i) {
    start(plain_role(ChatFormatKind::kZephyr, messages[i], i));
    prompt.text(messages[i].content);
    if (stays_open(messages, options, i)) return;
    prompt.control(spec.eos_id.value());
    prompt.text("\n");
  }
  if (options.add_generation_prompt) start("assistant");
}

}  // namespace caravan::text
