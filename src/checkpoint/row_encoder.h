#pragma once
// float32 values to the stored type, refusing those that would not survive.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "caravan/core/dtype.h"

namespace caravan::checkpoint {

/// Writes `count` values as `dtype` to `out`. Gives the index of the first one that is NaN,
/// infinite, or too large for `dtype`.
std::optional<std::int64_t> encode_values(const float* values, std::int64_t count, DType dtype,
                                          std::byte* out);

/// Why encode_values stopped at a value: "is NaN" ...
std::string encoding_fault(float value, DType dtype);

}  // namespace caravan::checkpoint
