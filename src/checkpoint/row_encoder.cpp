#include "row_encoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "caravan/core/error.h"

namespace caravan::checkpoint {
namespace {

constexpr std::uint32_t kFloatExponent = 0x7f800000U;  // all bits set: infinite or NaN
constexpr std::uint16_t kBfloatExponent = 0x7f80U;
constexpr std::uint16_t kHalfExponent = 0x7c00U;

bool all_set(std::uint32_t bits, std::uint32_t exponent) { return (bits & exponent) == exponent; }

// Loops without a branch or a call per element, for the compiler to vectorise: a converted model
// has billions of elements. Each tells whether something bad was among the values.

bool encode_float32(const float* values, std::int64_t count, std::byte* out) {
  std::memcpy(out, values, static_cast<std::size_t>(count) * sizeof(float));
  bool bad = false;
  for (std::int64_t i = 0; i < count; ++i)
    bad |= all_set(std::bit_cast<std::uint32_t>(values[i]), kFloatExponent);
  return bad;
}

bool encode_bfloat16(const float* values, std::int64_t count, std::byte* out) {
  bool bad = false;
  for (std::int64_t i = 0; i < count; ++i) {
    // As float_to_bf16, but for NaN, which is refused anyway.
    const auto bits = std::bit_cast<std::uint32_t>(values[i]);
    const auto rounded = static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
    bad |= all_set(bits, kFloatExponent) | all_set(rounded, kBfloatExponent);
    std::memcpy(out + 2 * i, &rounded, sizeof(rounded));
  }
  return bad;
}

bool encode_float16(const float* values, std::int64_t count, std::byte* out) {
  bool bad = false;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint16_t bits = float_to_fp16(values[i]);
    bad |= all_set(bits, kHalfExponent);
    std::memcpy(out + 2 * i, &bits, sizeof(bits));
  }
  return bad;
}

bool is_bad(float value, DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return !std::isfinite(value);
    case DType::kBFloat16: return all_set(float_to_bf16(value), kBfloatExponent);
    case DType::kFloat16: return all_set(float_to_fp16(value), kHalfExponent);
    case DType::kInt8:
    case DType::kInt4: break;
  }
  return true;
}

bool encode(const float* values, std::int64_t count, DType dtype, std::byte* out) {
  switch (dtype) {
    case DType::kFloat32: return encode_float32(values, count, out);
    case DType::kBFloat16: return encode_bfloat16(values, count, out);
    case DType::kFloat16: return encode_float16(values, count, out);
    case DType::kInt8:
    case DType::kInt4: break;
  }
  throw_internal_error(__FILE__, __LINE__, "dtype", "single values have no quantized form");
}

// Without its sign, the pattern of an infinity or NaN is at least `exponent`. A signed maximum is
// what processors have an instruction for.
template <typename Bits>
bool any_not_finite(const std::byte* values, std::int64_t count, Bits exponent) {
  Bits largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Bits bits = 0;
    std::memcpy(&bits, values + i * static_cast<std::int64_t>(sizeof(Bits)), sizeof(Bits));
    const auto magnitude = static_cast<Bits>(bits & std::numeric_limits<Bits>::max());
    largest = std::max(largest, magnitude);
  }
  return largest >= exponent;
}

bool any_not_finite(const std::byte* values, std::int64_t count, DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return any_not_finite(values, count, static_cast<std::int32_t>(kFloatExponent));
    case DType::kBFloat16:
      return any_not_finite(values, count, static_cast<std::int16_t>(kBfloatExponent));
    case DType::kFloat16:
      return any_not_finite(values, count, static_cast<std::int16_t>(kHalfExponent));
    case DType::kInt8:
    case DType::kInt4: return false;  // codes are any
  }
  return true;
}

}  // namespace

std::optional<std::int64_t> encode_values(const float* values, std::int64_t count, DType dtype,
                                          std::byte* out) {
  if (!encode(values, count, dtype, out)) return std::nullopt;
  for (std::int64_t i = 0; i < count; ++i) {
    if (is_bad(values[i], dtype)) return i;
  }
  throw_internal_error(__FILE__, __LINE__, "is_bad", "a bad value that cannot be found again");
}

std::optional<std::int64_t> find_not_finite(const std::byte* values, std::int64_t count,
                                            DType dtype) {
  if (!any_not_finite(values, count, dtype)) return std::nullopt;
  for (std::int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(load_element(values, dtype, i))) return i;
  }
  throw_internal_error(__FILE__, __LINE__, "isfinite", "a bad value that cannot be found again");
}

std::string encoding_fault(float value, DType dtype) {
  if (std::isnan(value)) return "is NaN";
  if (std::isinf(value)) return "is infinite";
  if (is_quantized(dtype)) {
    return fmt::format(
        "is {}, and its group is too large for {} with fp16 scales (choose another "
        "--dtype)",
        value, dtype_name(dtype));
  }
  return fmt::format("is {}, too large for {} (choose another --dtype)", value, dtype_name(dtype));
}

}  // namespace caravan::checkpoint
