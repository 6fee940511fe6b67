#pragma once
// The parts of a tokenizer.json around the model: which of them byte-level Llama tokenizers use,
// and what they mean here. Anything else is refused by name, never ignored.

#include <optional>
#include <string>
#include <vector>

#include "json_fields.h"

namespace caravan::text {

/// Refuses every normalizer: text reaches byte-level tokenizers unchanged.
void check_normalizer(const Json* normalizer);

/// Split patterns of a byte-level pre-tokenizer.
std::vector<std::string> split_patterns_of(const Json* pre_tokenizer);

/// Refuses decoders other than ByteLevel.
void check_decoder(const Json* decoder);

/// Content of the token that is put before every text, if there is one.
std::optional<std::string> prefix_token_of(const Json* post_processor);

}  // namespace caravan::text
