#pragma once
// Element types of stored weights, and exact conversion to and from float32.
//
// Leaves out: ATen's and HDF5's own type ids (ops/, io/), block quantization (checkpoint/).

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace caravan {

enum class DType { kFloat32, kBFloat16, kFloat16 };

/// Bytes of one element.
std::int64_t element_bytes(DType dtype);

/// "fp32", "bf16" or "fp16".
std::string_view dtype_name(DType dtype);

/// Inverse of dtype_name; empty when the name is none of the three.
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
/// hot loops.
float load_element(const void* data, DType dtype, std::int64_t index);

}  // namespace caravan
