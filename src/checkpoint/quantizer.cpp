#include "quantizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "block_fields.h"
#include "caravan/core/error.h"

namespace caravan::checkpoint {
namespace {

using namespace block_fields;

constexpr std::int64_t kGroup = kQuantGroup;
constexpr std::uint16_t kHalfExponent = 0x7c00U;
using Codes = std::array<std::uint8_t, kGroup>;

struct Group {
  Codes codes{};
  std::uint16_t scale = 0;
  std::uint16_t minimum = 0;
};

bool is_finite(std::uint16_t half) { return (half & kHalfExponent) != kHalfExponent; }

void store_half(std::byte* target, std::int64_t index, std::uint16_t half) {
  std::memcpy(target + index * 2, &half, sizeof(half));
}

/// False if fp16 cannot hold a parameter.
bool store(const Group& group, std::int64_t index, DType dtype, const QuantizedTarget& target) {
  store_half(target.scales, index, group.scale);
  if (dtype == DType::kInt8) {
    std::memcpy(target.codes + index * kGroup, group.codes.data(), kGroup);
    return is_finite(group.scale);
  }
  store_half(target.minimums, index, group.minimum);
  std::byte* const pairs = target.codes + index * (kGroup / 2);
  for (std::size_t i = 0; i < kGroup / 2; ++i) {
    pairs[i] = static_cast<std::byte>(group.codes[2 * i] | group.codes[2 * i + 1] << 4);
  }
  return is_finite(group.scale) && is_finite(group.minimum);
}

template <typename MakeGroup>
std::optional<std::int64_t> store_groups(std::int64_t count, DType dtype,
                                         const QuantizedTarget& target,
                                         const MakeGroup& make_group) {
  for (std::int64_t g = 0; g < count; ++g) {
    if (!store(make_group(g), g, dtype, target)) return g * kGroup;
  }
  return std::nullopt;
}

Group quantize_int8(const float* values) {
  float largest = 0;
  for (std::int64_t i = 0; i < kGroup; ++i) largest = std::max(largest, std::fabs(values[i]));
  Group group;
  group.scale = float_to_fp16(largest / 127.0F);
  const float scale = fp16_to_float(group.scale);
  if (scale == 0.0F) return group;
  for (std::size_t i = 0; i < kGroup; ++i) {
    const float code = std::clamp(std::nearbyint(values[i] / scale), -127.0F, 127.0F);
    group.codes[i] = static_cast<std::uint8_t>(static_cast<std::int8_t>(code));
  }
  return group;
}

// Below, fp16 has zero.
constexpr float kLeastScale = 0x1p-26F;
constexpr float kLargestHalf = 65504.0F;

/// Codes nearest to the values for a scale and minimum.
void choose_codes(const float* values, float scale, float minimum, Codes& codes) {
  const float inverse = scale < kLeastScale ? 0.0F : 1.0F / scale;
  for (std::size_t i = 0; i < kGroup; ++i) {
    const float code = std::clamp((values[i] - minimum) * inverse, 0.0F, 15.0F);
    codes[i] = static_cast<std::uint8_t>(code + 0.5F);
  }
}

struct Line {
  float scale = 0;
  float minimum = 0;
};

/// The line through (code, value) with the least squared error.
Line fit_line(const float* values, const Codes& codes) {
  float sum_q = 0;
  float sum_qq = 0;
  float sum_w = 0;
  float sum_qw = 0;
  for (std::size_t i = 0; i < kGroup; ++i) {
    const auto q = static_cast<float>(codes[i]);
    sum_q += q;
    sum_qq += q * q;
    sum_w += values[i];
    sum_qw += q * values[i];
  }
  constexpr auto kCount = static_cast<float>(kGroup);
  const float spread = kCount * sum_qq - sum_q * sum_q;
  if (spread <= 0) return {0, sum_w / kCount};
  const float scale = (kCount * sum_qw - sum_q * sum_w) / spread;
  return {scale, (sum_w - scale * sum_q) / kCount};
}

Group quantize_int4(const float* values) {
  constexpr int kCandidates = 12;
  constexpr float kShortening = 0.02F;  // of the range, from one candidate to the next
  const auto [least, most] = std::minmax_element(values, values + kGroup);
  Group best;
  if (std::max(-*least, *most) > kLargestHalf) {  // beyond what a minimum can reach
    best.minimum = kHalfExponent;
    return best;
  }
  float least_error = -1;
  for (int i = 0; i < kCandidates; ++i) {
    const float range = *most - *least;
    const float cut = range * kShortening * static_cast<float>(i);
    Group group;
    choose_codes(values, (range - cut) / 15.0F, *least + cut / 2, group.codes);
    const Line line = fit_line(values, group.codes);
    group.scale = float_to_fp16(line.scale);
    group.minimum = float_to_fp16(line.minimum);
    const float scale = fp16_to_float(group.scale);
    const float minimum = fp16_to_float(group.minimum);
    choose_codes(values, scale, minimum, group.codes);
    float error = 0;
    for (std::size_t k = 0; k < kGroup; ++k) {
      const float difference = static_cast<float>(group.codes[k]) * scale + minimum - values[k];
      error += difference * difference;
    }
    if (i == 0 || error < least_error) {
      least_error = error;
      best = group;
    }
  }
  return best;
}

Codes split_halves(const std::byte* q) {
  Codes codes;
  for (std::size_t j = 0; j < kGroup / 2; ++j) {
    codes[j] = static_cast<std::uint8_t>(low_nibble(q[j]));
    codes[j + kGroup / 2] = static_cast<std::uint8_t>(high_nibble(q[j]));
  }
  return codes;
}

Group import_q8_0(const std::byte* block) {
  Group group;
  group.scale = load<std::uint16_t>(block);
  std::memcpy(group.codes.data(), block + 2, kGroup);
  return group;
}

Group import_q4_1(const std::byte* block) {
  return {split_halves(block + 4), load<std::uint16_t>(block), load<std::uint16_t>(block + 2)};
}

// d (q - 8) = d q + (-8 d): times 8 is exact in fp16 unless it overflows.
Group import_q4_0(const std::byte* block, DType dtype) {
  Group group;
  group.scale = load<std::uint16_t>(block);
  group.codes = split_halves(block + 2);
  if (dtype == DType::kInt4) {
    group.minimum = float_to_fp16(-8.0F * fp16_to_float(group.scale));
    return group;
  }
  for (std::uint8_t& code : group.codes) code = static_cast<std::uint8_t>(code - 8);
  return group;
}

}  // namespace

std::optional<std::int64_t> quantize_values(const float* values, std::int64_t count, DType dtype,
                                            const QuantizedTarget& target) {
  CARAVAN_ASSERT(is_quantized(dtype) && count % kGroup == 0, "{} values as {}", count,
                 dtype_name(dtype));
  return store_groups(count / kGroup, dtype, target, [&](std::int64_t g) {
    const float* const group = values + g * kGroup;
    return dtype == DType::kInt8 ? quantize_int8(group) : quantize_int4(group);
  });
}

bool has_quantized_form(ElementType type, DType dtype) {
  if (type == ElementType::kQ4_0) return is_quantized(dtype);
  return (type == ElementType::kQ8_0 && dtype == DType::kInt8) ||
         (type == ElementType::kQ4_1 && dtype == DType::kInt4);
}

std::optional<std::int64_t> import_blocks(ElementType type, const std::byte* blocks,
                                          std::int64_t num_blocks, DType dtype,
                                          const QuantizedTarget& target) {
  CARAVAN_ASSERT(has_quantized_form(type, dtype), "{} as {}", element_type_name(type),
                 dtype_name(dtype));
  const std::int64_t block_bytes = block_layout(type).bytes;
  return store_groups(num_blocks, dtype, target, [&](std::int64_t g) {
    const std::byte* const block = blocks + g * block_bytes;
    if (type == ElementType::kQ8_0) return import_q8_0(block);
    return type == ElementType::kQ4_1 ? import_q4_1(block) : import_q4_0(block, dtype);
  });
}

}  // namespace caravan::checkpoint
