#pragma once
// How quantized weights lie in memory: a panel is its groups of 32 columns one after the other, and
// what a group of 32 outputs needs lies together, so that a product reads one stream. Plain types,
// also for the kernels. Private to src/ops.

#include <cstdint>

namespace caravan::ops {

/// Values: codes[k][output] * scales[output].
struct Int8Group {
  std::int8_t codes[32][32];
  std::uint16_t scales[32];  // fp16
};

/// Values: fma(code, scales[output], minimums[output]); the codes of outputs 0 to 15 are the lower
/// halves, those of 16 to 31 the upper ones.
struct Int4Group {
  std::uint8_t codes[32][16];
  std::uint16_t scales[32];  // fp16
  std::uint16_t minimums[32];
};

}  // namespace caravan::ops
