#pragma once
// The three forms in which log-probabilities are answered: chat, completions, and vLLM's
// `prompt_logprobs`.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "caravan/engine/request.h"
#include "caravan/text/detokenizer.h"
#include "caravan/text/tokenizer.h"

namespace caravan::batch {

struct LogprobStyle {
  const text::Tokenizer* tokenizer = nullptr;
  std::int64_t top = 0;       // alternatives shown for each token
  bool show_special = false;  // whether special tokens are part of the text
};

/// {"content":[{"token","logprob","bytes","top_logprobs":[..]},..]}
void append_chat_logprobs(std::string& out, std::span<const engine::TokenLogprob> tokens,
                          const LogprobStyle& style);

/// The prompt in front of a generated text, where the answer shows it.
struct EchoedPrompt {
  std::span<const engine::TokenLogprob> tokens;  // the first has no log-probability
  std::string_view text;
  bool shows_special = false;  // whether special tokens are part of `text`
};

/// {"text_offset":[..],"token_logprobs":[..],"tokens":[..],"top_logprobs":[..]} over prompt tokens
/// and generated ones. Offsets are characters of the answer's text.
/// @param start  how the generated text was decoded
void append_completion_logprobs(std::string& out, const EchoedPrompt& prompt,
                                std::span<const engine::TokenLogprob> generated,
                                text::DecodedText start, const LogprobStyle& style);

/// [null,{"<id>":{"logprob","rank","decoded_token"},..},..]
void append_prompt_logprobs(std::string& out, std::span<const engine::TokenLogprob> prompt,
                            const LogprobStyle& style);

}  // namespace caravan::batch
