#pragma once
// Tokenizer and chat format of a source, settled once both and the model's sizes are known.
//
// Leaves out: reading them from files (text_files.h, gguf_source.cpp).

#include <cstdint>
#include <string>

#include "caravan/checkpoint/source.h"

namespace caravan::checkpoint {

/// Leaves out added tokens without a row of the embedding, with a warning: fine-tuning tools name
/// such ones (the "<pad>" of Llama 2), but no model can read or write them. Text never gives them.
/// @throws InputError if an ordinary token has no row, or the BOS that prompts begin with.
void fit_tokenizer(text::TokenizerSpec& tokenizer, std::int64_t rows, const std::string& where);

/// Sets the chat format from the template or as the options say, and checks the tokenizer against
/// it.
/// @throws InputError for an unknown template, a format whose control tokens do not exist, or a
/// tokenizer that has faults or more ids than the model.
void settle_text(ModelDescription& description, const SourceOptions& options,
                 const std::string& where);

}  // namespace caravan::checkpoint
