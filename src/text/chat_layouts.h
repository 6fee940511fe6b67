#pragma once
// One function per family of chat layouts; chat_format.cpp chooses. All throw InputError for what
// their layout cannot express.

#include <string>
#include <vector>

#include "caravan/text/chat_format.h"
#include "prompt_parts.h"

namespace caravan::text {

using Messages = std::vector<ChatMessage>;

/// Llama 3 and later: kLlama3, kLlama3Plain, kLlama31 and kLlama32Vision.
void lay_out_llama3(const ChatFormat& format, const Messages& messages, const ChatOptions& options,
                    PromptParts& prompt);

void lay_out_llama2(const Messages& messages, const ChatOptions& options, PromptParts& prompt);

/// kChatMl and kChatMlBos.
void lay_out_chatml(const ChatFormat& format, const Messages& messages, const ChatOptions& options,
                    PromptParts& prompt);

void lay_out_zephyr(const Messages& messages, const ChatOptions& options, PromptParts& prompt);

/// Whether the message at `index` is the one that the model is to go on with.
inline bool stays_open(const Messages& messages, const ChatOptions& options, std::size_t index) {
  return options.continue_final_message && index + 1 == messages.size();
}

inline bool is_system(const ChatMessage& message) {
  return message.role == "system" || message.role == "developer";
}

/// The role as headers name it, of the layouts that know no tools.
/// @throws InputError for a role that these do not have.
std::string_view plain_role(ChatFormatKind kind, const ChatMessage& message, std::size_t index);

}  // namespace caravan::text
