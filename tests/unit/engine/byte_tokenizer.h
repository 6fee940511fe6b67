#pragma once
// A tokenizer whose ids can be read: 0 to 255 are bytes, then a few longer pieces, then special
// tokens.

#include <string>

#include "caravan/text/tokenizer.h"

namespace caravan::test {

inline constexpr std::int32_t kStopPiece = 256;  // "STOP"
inline constexpr std::int32_t kDotPiece = 257;   // "a.b"
inline constexpr std::int32_t kEosId = 258;      // special "<eos>"
inline constexpr std::int32_t kEotId = 259;      // special "<eot>"
inline constexpr std::int64_t kByteVocabulary = 260;

/// @param vocab_size  padded with unused ids up to it.
inline text::TokenizerSpec byte_tokenizer_spec(std::int64_t vocab_size = kByteVocabulary) {
  text::TokenizerSpec spec;
  for (int byte = 0; byte < 256; ++byte) spec.tokens.emplace_back(1, static_cast<char>(byte));
  spec.tokens.push_back("STOP");
  spec.tokens.push_back("a.b");
  spec.tokens.push_back("");
  spec.tokens.push_back("");
  spec.tokens.resize(static_cast<std::size_t>(vocab_size));
  spec.added_tokens = {{kEosId, "<eos>", true}, {kEotId, "<eot>", true}};
  spec.eos_id = kEosId;
  return spec;
}

}  // namespace caravan::test
