#pragma once
// Options of an added token as bits: the second column of /tokenizer/added_token_ids.

#include <array>
#include <cstdint>
#include <utility>

#include "caravan/text/tokenizer_spec.h"

namespace caravan::checkpoint {

constexpr std::int32_t kNormalizedBit = 2;
constexpr std::array<std::pair<std::int32_t, bool text::AddedToken::*>, 5> kTokenBits = {{
    {1, &text::AddedToken::special},
    {kNormalizedBit, &text::AddedToken::normalized},
    {4, &text::AddedToken::single_word},
    {8, &text::AddedToken::lstrip},
    {16, &text::AddedToken::rstrip},
}};

inline std::int32_t token_bits(const text::AddedToken& token) {
  std::int32_t bits = 0;
  for (const auto& [bit, option] : kTokenBits) bits |= token.*option ? bit : 0;
  return bits;
}

inline void set_token_bits(text::AddedToken& token, std::int32_t bits) {
  for (const auto& [bit, option] : kTokenBits) token.*option = (bits & bit) != 0;
}

}  // namespace caravan::checkpoint
