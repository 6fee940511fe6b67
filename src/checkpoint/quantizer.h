#pragma once
// Rows of a matrix as int8 or int4 (core/dtype.h): chosen for the least error, or taken over from
// GGUF's blocks, which have the same groups and scales.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "caravan/checkpoint/element_type.h"
#include "caravan/core/dtype.h"

namespace caravan::checkpoint {

/// Where the groups of some rows go, one after the other.
struct QuantizedTarget {
  std::byte* codes = nullptr;     // 32 bytes for each group; int4 16
  std::byte* scales = nullptr;    // fp16
  std::byte* minimums = nullptr;  // fp16, of int4
};

/// int8: the largest magnitude becomes 127. int4: scale and minimum that give the least sum of
/// squared errors among some shortened ranges, each fitted to its codes; both as rounded to fp16.
/// @param values  finite, whole groups
/// @return the index of the first value of a group whose scale or minimum fp16 cannot hold.
std::optional<std::int64_t> quantize_values(const float* values, std::int64_t count, DType dtype,
                                            const QuantizedTarget& target);

/// Whether blocks of `type` have exact counterparts: Q8_0 and Q4_0 in int8, Q4_0 and Q4_1 in int4.
bool has_quantized_form(ElementType type, DType dtype);

/// Their codes and scales, for which the values come out as decode_blocks gives them (zeros without
/// their sign). @pre has_quantized_form
/// @return the index of the first value of a block whose scale or minimum is not finite in fp16.
std::optional<std::int64_t> import_blocks(ElementType type, const std::byte* blocks,
                                          std::int64_t num_blocks, DType dtype,
                                          const QuantizedTarget& target);

}  // namespace caravan::checkpoint
