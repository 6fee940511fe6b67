#pragma once
// float32 values to the stored type, refusing those that would not survive or are no numbers.

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

/// The index of the first of `count` values of `dtype` that is NaN or infinite.
std::optional<std::int64_t> find_not_finite(const std::byte* values, std::int64_t count,
                                            DType dtype);

/// Why encode_values stopped at a value: "is NaN" ...
std::string encoding_fault(float value, DType dtype);

}  // namespace caravan::checkpoint
