#pragma once
// The token that marks an image in the text.

#include <cstdint>
#include <string>

#include "caravan/text/tokenizer_spec.h"

namespace caravan::checkpoint {

/// Gives the text <|image|> the first id behind the vocabulary, which Hugging Face's tokenizers of
/// vision models have already. Meta's tokenizer.model has it among the reserved tokens, where the
/// model's code replaces it.
/// @throws InputError naming `where`: <|image|> with another id, another token at this one, a
/// tokenizer of Llama 2's kind.
void add_image_token(text::TokenizerSpec& tokenizer, std::int64_t vocab_size,
                     const std::string& where);

}  // namespace caravan::checkpoint
