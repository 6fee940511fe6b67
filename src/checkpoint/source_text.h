#pragma once
// Tokenizer and chat format of a source, settled once both and the model's sizes are known.
//
// Leaves out: reading them from files (text_files.h, gguf_source.cpp).

#include <string>

#include "caravan/checkpoint/source.h"

namespace caravan::checkpoint {

/// Sets the chat format from the template or as the options say, and checks the tokenizer against
/// it and the model: every id has a row of the embedding.
/// @throws InputError for an unknown template, a format whose control tokens do not exist, or a
/// tokenizer that has faults or more ids than the model.
void settle_text(ModelDescription& description, const SourceOptions& options,
                 const std::string& where);

}  // namespace caravan::checkpoint
