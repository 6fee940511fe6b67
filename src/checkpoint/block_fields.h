#pragma once
// Fields of ggml's quantization blocks. Blocks have no padding and no alignment: every field is
// loaded byte-wise.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "caravan/core/dtype.h"

namespace caravan::checkpoint::block_fields {

template <typename T>
T load(const std::byte* p) {
  T value{};
  std::memcpy(&value, p, sizeof(value));
  return value;
}

inline float load_half(const std::byte* p) { return fp16_to_float(load<std::uint16_t>(p)); }

inline int low_nibble(std::byte b) { return std::to_integer<int>(b & std::byte{0x0f}); }
inline int high_nibble(std::byte b) { return std::to_integer<int>(b >> 4); }
inline int bit(std::uint32_t bits, int index) { return static_cast<int>(bits >> index & 1U); }
/// `count` bits from bit `begin` on.
inline int bits(std::byte b, int begin, int count) {
  return std::to_integer<int>(b) >> begin & ((1 << count) - 1);
}

}  // namespace caravan::checkpoint::block_fields
