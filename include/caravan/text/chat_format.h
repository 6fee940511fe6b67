#pragma once
// Chat layouts: a list of messages to prompt ids. Control tokens are inserted as ids; what users
// wrote is encoded as plain text and can never become a control token.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "caravan/text/tokenizer.h"

namespace caravan::text {

enum class ChatFormatKind {  // new ones come last: the values are part of stored hashes
  kNone,                     // base model: chat requests are refused
  kLlama3,                   // 3.0: no automatic system block
  kLlama31,  // 3.1, 3.2, 3.3: system block with knowledge and date lines always present
  kChatMl,   // <|im_start|>role ... <|im_end|>, with the checkpoint's default system text where
             // it has one
  kLlama32Vision,  // as kLlama31, contents not trimmed; with images no system block and no system
                   // message
  kLlama2,         // [INST] ... [/INST], system text in <<SYS>> inside the first user message
  kZephyr,         // <|role|> as plain text and </s> behind each message (Zephyr, TinyLlama)
  kLlama3Plain,    // as kLlama3, contents not trimmed: Meta's own layout, with and without images
  kChatMlBos,      // as kChatMl, behind BOS (Hermes and other models made of Llama)
};

/// "none", "llama3", "llama3.1", "chatml", "llama3.2-vision", "llama2", "zephyr", "llama3-plain",
/// "chatml-bos".
std::string_view chat_format_name(ChatFormatKind kind);
std::optional<ChatFormatKind> parse_chat_format(std::string_view name);
std::vector<ChatFormatKind> chat_format_kinds();
/// All names with "|" between them, for help texts and messages.
std::string chat_format_names();
/// For users who chose a format that ChatFormat::leaves_out_bos().
std::string missing_bos_warning(ChatFormatKind kind);

/// A call that an assistant message makes.
struct ChatToolCall {
  std::string name;
  std::string arguments;  // text of a JSON object
  bool operator==(const ChatToolCall&) const = default;
};

struct ChatMessage {
  std::string role;     // system, developer (= system), user, assistant, tool (kLlama31,
                        // kLlama32Vision), ipython
  std::string content;  // valid UTF-8; unused where there is a tool call, as in the templates
  std::vector<ChatToolCall> tool_calls;  // of an assistant; the formats that know it take one
  /// Of a user: an image stands before this byte of `content`, for each image in order.
  std::vector<std::size_t> image_offsets = {};
};

struct ChatOptions {
  bool add_generation_prompt = true;
  bool continue_final_message =
      false;  // the last (assistant) message stays open; excludes add_generation_prompt
  /// "Today Date" of kLlama31 and kLlama32Vision. Llama 3.2's template would ask the clock; a fixed
  /// default keeps answers reproducible.
  std::string date = "26 Jul 2024";
  /// JSON text of each tool that may be called (kLlama31, kLlama32Vision); keys keep their order.
  std::vector<std::string> tools;
  bool tools_in_user_message = true;  // else in the system block
  /// Names of tools that the model was trained with (kLlama31), such as brave_search.
  std::vector<std::string> builtin_tools;
};

class ChatFormat {
 public:
  /// @param default_system  kChatMl, kChatMlBos: system text used when the first message is not a
  /// system message ("" = none). @param image_id  token that stands for an image, if the model
  /// reads any.
  /// @throws ConfigError if `tokenizer` lacks a control token of the format. `tokenizer` outlives
  /// this object.
  ChatFormat(ChatFormatKind kind, const Tokenizer& tokenizer, std::string default_system = {},
             std::optional<std::int32_t> image_id = {});

  ChatFormatKind kind() const { return kind_; }
  const std::string& default_system() const { return default_system_; }
  std::optional<std::int32_t> image_id() const { return image_id_; }
  /// Whether the tokenizer puts BOS before raw text, but no prompt of this format begins with it.
  bool leaves_out_bos() const;

  /// Prompt ids, BOS included where the format has one (kZephyr: where the tokenizer puts one
  /// before raw text). Contents lose white space at both ends (kLlama2, kLlama3, kLlama31) or stay
  /// as they are, as in the models' own templates. An image is one token where it stands.
  /// @throws InputError for an empty list, a role, an order of roles, a tool or an image that the
  /// format does not have, options that exclude each other, contents that are not UTF-8, or kNone.
  std::vector<std::int32_t> render(const std::vector<ChatMessage>& messages,
                                   const ChatOptions& options) const;

  /// Upper bound of render(...).size(), from bytes alone. @throws InputError as render() does, but
  /// for contents that are not UTF-8.
  std::int64_t most_tokens(const std::vector<ChatMessage>& messages,
                           const ChatOptions& options) const;

  /// Ids that end an assistant turn in this format (beside the checkpoint's own stop ids).
  std::vector<std::int32_t> stop_ids() const;

 private:
  ChatFormatKind kind_;
  const Tokenizer* tokenizer_;
  std::string default_system_;
  std::optional<std::int32_t> image_id_;
};

/// What a checkpoint's stored Jinja template asks for, recognised by what it prints for
/// conversations without tools, with the control tokens of its tokenizer. Tool messages of
/// kLlama31 and kLlama32Vision are always those of the models' own templates.
struct RecognisedTemplate {
  ChatFormatKind kind = ChatFormatKind::kNone;
  std::string default_system;
};
/// Empty when the template belongs to no built-in format (one that prints or does more than these
/// is not guessed at, and one that refuses what the format takes). An empty template gives kNone.
std::optional<RecognisedTemplate> recognise_chat_template(const std::string& jinja,
                                                          const TokenizerSpec& tokenizer);

}  // namespace caravan::text
