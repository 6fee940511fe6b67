#pragma once
// Element types of stored weights, and exact conversion to and from float32.
//
// Quantized matrices have codes in groups of 32 consecutive inputs of one output; a group has a
// scale, with int4 also a minimum, both fp16. Values: int8, q in [-127, 127]: q * scale. int4, q in
// [0, 15]: fma(q, scale, minimum), so that there is one rounding. Two int4 codes share a byte, the
// one of the even input in the lower half.
//
// Leaves out: ATen's and HDF5's own type ids (ops/, io/), other programs' block quantizations and
// the choice of scales (checkpoint/).

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace caravan {

enum class DType { kFloat32, kBFloat16, kFloat16, kInt8, kInt4 };

/// Inputs of a group.
inline constexpr std::int64_t kQuantGroup = 32;

inline bool is_quantized(DType dtype) { return dtype == DType::kInt8 || dtype == DType::kInt4; }

/// Bytes of one element; of int4 of one pair of codes, the smallest thing that is stored.
std::int64_t element_bytes(DType dtype);

/// "fp32", "bf16", "fp16", "int8" or "int4".
std::string_view dtype_name(DType dtype);

/// Inverse of dtype_name; empty when the name is none of these.
std::optional<DType> parse_dtype(std::string_view name);

inline float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Round to nearest even; NaN stays NaN, overflow becomes infinity.
std::uint16_t float_to_bf16(float value);

/// IEEE 754 binary16, exact in this direction (subnormals included).
float fp16_to_float(std::uint16_t bits);

/// Round to nearest even; NaN stays NaN, overflow becomes infinity.
std::uint16_t float_to_fp16(float value);

/// Element `index` of an array of `dtype` as float32. For references and single elements, not for
/// hot loops. @pre not quantized
float load_element(const void* data, DType dtype, std::int64_t index);

}  // namespace caravan
