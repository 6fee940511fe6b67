#pragma once
// Chat layouts: a list of messages to prompt ids. Control tokens are inserted as ids; what users
// wrote is encoded as plain text and can never become a control token.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "caravan/text/tokenizer.h"

namespace caravan::text {

enum class ChatFormatKind {
  kNone,     // base model: chat requests are refused
  kLlama3,   // 3.0: no automatic system block
  kLlama31,  // 3.1, 3.2, 3.3: system block with knowledge and date lines always present
  kChatMl,   // <|im_start|>role ... <|im_end|>, with the checkpoint's default system text where it
             // has one
};

/// "none", "llama3", "llama3.1", "chatml".
std::string_view chat_format_name(ChatFormatKind kind);
std::optional<ChatFormatKind> parse_chat_format(std::string_view name);

struct ChatMessage {
  std::string role;     // system, developer (= system), user, assistant, tool (or ipython)
  std::string content;  // valid UTF-8
};

struct ChatOptions {
  bool add_generation_prompt = true;
  bool continue_final_message =
      false;  // the last (assistant) message stays open; excludes add_generation_prompt
  std::string date = "26 Jul 2024";  // kLlama31's "Today Date"
};

class ChatFormat {
 public:
  /// @param default_system  kChatMl: system text used when the first message is not a system
  /// message ("" = none).
  /// @throws ConfigError if `tokenizer` lacks a control token of the format. `tokenizer` outlives
  /// this object.
  ChatFormat(ChatFormatKind kind, const Tokenizer& tokenizer, std::string default_system = {});

  ChatFormatKind kind() const { return kind_; }
  const std::string& default_system() const { return default_system_; }

  /// Prompt ids, BOS included where the format has one. Contents lose white space at both ends
  /// (Llama formats) or stay as they are (ChatML), as in the models' own templates.
  /// @throws InputError for an empty list, a role that the format does not have, options that
  /// exclude each other, contents that are not UTF-8, or kNone.
  std::vector<std::int32_t> render(const std::vector<ChatMessage>& messages,
                                   const ChatOptions& options) const;

  /// Ids that end an assistant turn in this format (beside the checkpoint's own stop ids).
  std::vector<std::int32_t> stop_ids() const;

 private:
  ChatFormatKind kind_;
  const Tokenizer* tokenizer_;
  std::string default_system_;
};

/// What a checkpoint's stored Jinja template asks for, recognised by its control tokens and fixed
/// texts.
struct RecognisedTemplate {
  ChatFormatKind kind = ChatFormatKind::kNone;
  std::string default_system;
};
/// Empty when the template belongs to no built-in format (one that prints or does more than these
/// is not guessed at). An empty template gives kNone.
std::optional<RecognisedTemplate> recognise_chat_template(const std::string& jinja);

}  // namespace caravan::text
