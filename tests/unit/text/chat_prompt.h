#pragma once
// Prompts of chat formats in a form that can be read: one token per byte, and control tokens that
// came in as ids in square brackets.

#include <string>
#include <vector>

#include "caravan/text/chat_format.h"
#include "unit/text/byte_spec.h"

namespace caravan::test {

using text::ChatFormat;
using text::ChatFormatKind;
using text::ChatMessage;
using text::ChatOptions;
using text::Tokenizer;
using text::TokenizerSpec;

inline Tokenizer llama_tokenizer() {
  TokenizerSpec spec = byte_spec();
  for (const char* name :
       {"<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
        "<|eom_id|>", "<|eot_id|>", "<|python_tag|>", "<|image|>"}) {
    add_named(spec, name);
  }
  return Tokenizer(std::move(spec));
}

inline Tokenizer chatml_tokenizer() {
  TokenizerSpec spec = byte_spec();
  spec.bos_id = 256;  // <|endoftext|>
  for (const char* name : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    add_named(spec, name);
  }
  return Tokenizer(std::move(spec));
}

inline Tokenizer llama2_tokenizer() {
  TokenizerSpec spec = byte_spec();
  spec.bos_id = add_named(spec, "<s>");
  spec.eos_id = add_named(spec, "</s>");
  spec.add_bos = true;
  return Tokenizer(std::move(spec));
}

inline Tokenizer tokenizer_for(ChatFormatKind kind) {
  if (kind == ChatFormatKind::kChatMl || kind == ChatFormatKind::kChatMlBos)
    return chatml_tokenizer();
  const bool is_llama2 = kind == ChatFormatKind::kLlama2 || kind == ChatFormatKind::kZephyr;
  return is_llama2 ? llama2_tokenizer() : llama_tokenizer();
}

/// "<|eot_id|>" as "[eot_id]", "</s>" as "[/s]".
inline std::string in_brackets(const std::string& name) {
  const std::size_t edge = name.starts_with("<|") ? 2 : 1;
  return "[" + name.substr(edge, name.size() - 2 * edge) + "]";
}

inline std::string prompt(ChatFormatKind kind, const std::vector<ChatMessage>& messages,
                          const ChatOptions& options = {}, const std::string& default_system = {}) {
  const Tokenizer tokenizer = tokenizer_for(kind);
  const ChatFormat format(kind, tokenizer, default_system, tokenizer.special_id("<|image|>"));
  std::string text;
  for (const std::int32_t id : format.render(messages, options)) {
    const std::string token(tokenizer.token_bytes(id, true));
    text += tokenizer.is_special(id) ? in_brackets(token) : token;
  }
  return text;
}

inline ChatOptions without_prompt() {
  ChatOptions options;
  options.add_generation_prompt = false;
  return options;
}

/// The last message stays open.
inline ChatOptions continued() {
  ChatOptions options = without_prompt();
  options.continue_final_message = true;
  return options;
}

}  // namespace caravan::test
