#pragma once
// A run of keys that attention reads as one: plain data, for the kernels too.

#include <cstdint>

namespace caravan::ops {

/// `tokens` consecutive keys that start a block of their own. Every key of the run counts as
/// exp(score_bias) keys: the logarithm of how many equal ones it stands for.
struct KeyRun {
  std::int32_t tokens = 0;  // at least 1
  float score_bias = 0;
};

}  // namespace caravan::ops
