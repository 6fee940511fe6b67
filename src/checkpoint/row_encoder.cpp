#include "row_encoder.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

namespace caravan::checkpoint {
namespace {

// All exponent bits set: infinite or NaN.
constexpr std::uint32_t kFloatExponent = 0x7f800000U;
constexpr std::uint16_t kBfloatExponent = 0x7f80U;
constexpr std::uint16_t kHalfExponent = 0x7c00U;

bool bad_bits(std::uint16_t bits, std::uint16_t exponent) { return (bits & exponent) == exponent; }

template <typename Convert>
bool encode_16bit(const float* values, std::int64_t count, std::uint16_t exponent, std::byte* out,
                  Convert&& convert) {
  bool bad = false;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint16_t bits = convert(values[i]);
    bad |= bad_bits(bits, exponent);
    std::memcpy(out + 2 * i, &bits, sizeof(bits));
  }
  return bad;
}

bool is_bad(float value, DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return !std::isfinite(value);
    case DType::kBFloat16: return bad_bits(float_to_bf16(value), kBfloatExponent);
    case DType::kFloat16: return bad_bits(float_to_fp16(value), kHalfExponent);
  }
  return true;
}

}  // namespace

std::optional<std::int64_t> encode_values(const float* values, std::int64_t count, DType dtype,
                                          std::byte* out) {
  bool bad = false;
  switch (dtype) {
    case DType::kFloat32:
      std::memcpy(out, values, static_cast<std::size_t>(count) * sizeof(float));
      for (std::int64_t i = 0; i < count; ++i)
        bad |= (std::bit_cast<std::uint32_t>(values[i]) & kFloatExponent) == kFloatExponent;
      break;
    case DType::kBFloat16:
      bad = encode_16bit(values, count, kBfloatExponent, out, float_to_bf16);
      break;
    case DType::kFloat16:
      bad = encode_16bit(values, count, kHalfExponent, out, float_to_fp16);
      break;
  }
  if (!bad) return std::nullopt;
  for (std::int64_t i = 0; i < count; ++i) {
    if (is_bad(values[i], dtype)) return i;
  }
  return std::nullopt;
}

std::string encoding_fault(float value, DType dtype) {
  if (std::isnan(value)) return "is NaN";
  if (std::isinf(value)) return "is infinite";
  return fmt::format("is {}, too large for {} (choose another --dtype)", value, dtype_name(dtype));
}

}  // namespace caravan::checkpoint
