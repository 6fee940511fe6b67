// Llama 2: <s>[INST] <<SYS>>\nsystem\n<</SYS>>\n\nuser [/INST] assistant </s>, as in the model's
// template. Only <s> and </s> are control tokens.

#include "caravan/core/error.h"
#include "chat_layouts.h"
#include "chat_text.h"

namespace caravan::text {
namespace {

void check_turn(const ChatMessage& message, std::string_view expected, std::size_t index) {
  CARAVAN_CHECK(
      message.role == expected, InputError,
      "messages[{}]: expected role \"{}\", found \"{}\"; in the chat format llama2 user and "
      "assistant alternate, behind at most one system message",
      index, expected, message.role);
}

}  // namespace

void lay_out_llama2(const Messages& messages, const ChatOptions& options, PromptParts& prompt) {
  const TokenizerSpec& spec = prompt.tokenizer().spec();
  std::string before;  // in the first user message
  std::size_t next = 0;
  if (is_system(messages.front())) {
    before = "<<SYS>>\n" + messages.front().content + "\n<</SYS>>\n\n";
    next = 1;
    CARAVAN_CHECK(messages.size() > 1, InputError,
                  "messages: the chat format llama2 puts the system text into the first user "
                  "message, but there is none");
  }
  for (std::size_t turn = 0; next < messages.size(); ++turn, ++next) {
    const ChatMessage& message = messages[next];
    if (turn % 2 == 0) {
      check_turn(message, "user", next);
      prompt.control(spec.bos_id.value());
      prompt.text("[INST] ");
      prompt.text(trim(before + message.content));
      prompt.text(" [/INST]");
      before.clear();
    } else {
      check_turn(message, "assistant", next);
      prompt.text(" ");
      prompt.text(trim(message.content));
      if (stays_open(messages, options, next)) return;
      prompt.text(" ");
      prompt.control(spec.eos_id.value());
    }
  }
}

}  // namespace caravan::text
