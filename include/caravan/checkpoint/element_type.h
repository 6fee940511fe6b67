#pragma once
// How source checkpoints encode numbers, block quantizations included, and their values in float32.
//
// Leaves out: where a tensor lies (source.h) and what Caravan's own files store (core/dtype.h).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace caravan::checkpoint {

enum class ElementType {
  kF64,
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS
};

/// "F32", "Q4_1" ..., as safetensors and GGUF write them.
std::string_view element_type_name(ElementType type);

/// Elements are stored in blocks of consecutive elements of a row; plain types have blocks of one.
struct BlockLayout {
  std::int64_t elements = 1;
  std::int64_t bytes = 0;
};
BlockLayout block_layout(ElementType type);

inline bool is_quantized(ElementType type) { return block_layout(type).elements > 1; }

/// Values of whole blocks in float32: exact for plain types but F64 (rounded); quantized ones as
/// ggml and the gguf package give them (scale times code is exact in float32, so that only the sum
/// with the minimum is rounded).
/// @pre values.size() is a number of whole blocks and `blocks` holds exactly these.
void decode_blocks(ElementType type, std::span<const std::byte> blocks, std::span<float> values);

}  // namespace caravan::checkpoint
