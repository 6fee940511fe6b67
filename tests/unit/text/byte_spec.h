#pragma once
// A tokenizer to start from: one token per byte, and a few names.

#include <string>

#include "caravan/text/tokenizer_spec.h"

namespace caravan::test {

/// Ids 0 to 255 are the bytes; no merges, no patterns.
inline text::TokenizerSpec byte_spec() {
  text::TokenizerSpec spec;
  for (int byte = 0; byte < 256; ++byte) spec.tokens.emplace_back(1, static_cast<char>(byte));
  return spec;
}

/// Adds an ordinary token and returns its id.
inline std::int32_t add_token(text::TokenizerSpec& spec, const std::string& bytes) {
  spec.tokens.push_back(bytes);
  return static_cast<std::int32_t>(spec.tokens.size()) - 1;
}

/// Adds an added token and returns its id.
inline std::int32_t add_named(text::TokenizerSpec& spec, const std::string& content,
                              bool special = true) {
  const std::int32_t id = add_token(spec, special ? "" : content);
  spec.added_tokens.push_back({id, content, special});
  return id;
}

}  // namespace caravan::test
