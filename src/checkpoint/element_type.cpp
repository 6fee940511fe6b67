#include "caravan/checkpoint/element_type.h"

#include <cstring>

#include "block_fields.h"
#include "caravan/core/dtype.h"
#include "caravan/core/error.h"
#include "k_quants.h"

namespace caravan::checkpoint {
namespace {

using namespace block_fields;

constexpr int kHalfBlock = 16;  // low nibbles are elements 0-15 of a block, high nibbles 16-31

// The layouts are those of ggml-common.h: d [m] [qh] qs.
void decode_q4_0(const std::byte* block, float* x) {
  const float d = load_half(block);
  const std::byte* q = block + 2;
  for (int j = 0; j < kHalfBlock; ++j) {
    x[j] = d * static_cast<float>(low_nibble(q[j]) - 8);
    x[j + kHalfBlock] = d * static_cast<float>(high_nibble(q[j]) - 8);
  }
}

void decode_q4_1(const std::byte* block, float* x) {
  const float d = load_half(block);
  const float m = load_half(block + 2);
  const std::byte* q = block + 4;
  for (int j = 0; j < kHalfBlock; ++j) {
    x[j] = d * static_cast<float>(low_nibble(q[j])) + m;
    x[j + kHalfBlock] = d * static_cast<float>(high_nibble(q[j])) + m;
  }
}

void decode_q5_0(const std::byte* block, float* x) {
  const float d = load_half(block);
  const auto high = load<std::uint32_t>(block + 2);
  const std::byte* q = block + 6;
  for (int j = 0; j < kHalfBlock; ++j) {
    x[j] = d * static_cast<float>((low_nibble(q[j]) | bit(high, j) << 4) - 16);
    x[j + kHalfBlock] =
        d * static_cast<float>((high_nibble(q[j]) | bit(high, j + kHalfBlock) << 4) - 16);
  }
}

void decode_q5_1(const std::byte* block, float* x) {
  const float d = load_half(block);
  const float m = load_half(block + 2);
  const auto high = load<std::uint32_t>(block + 4);
  const std::byte* q = block + 8;
  for (int j = 0; j < kHalfBlock; ++j) {
    x[j] = d * static_cast<float>(low_nibble(q[j]) | bit(high, j) << 4) + m;
    x[j + kHalfBlock] =
        d * static_cast<float>(high_nibble(q[j]) | bit(high, j + kHalfBlock) << 4) + m;
  }
}

void decode_q8_0(const std::byte* block, float* x) {
  const float d = load_half(block);
  for (int j = 0; j < 2 * kHalfBlock; ++j) {
    x[j] = d * static_cast<float>(load<std::int8_t>(block + 2 + j));
  }
}

template <typename Decode>
void for_each_block(ElementType type, std::span<const std::byte> blocks, std::span<float> values,
                    Decode&& decode) {
  const BlockLayout layout = block_layout(type);
  const auto count = static_cast<std::int64_t>(values.size()) / layout.elements;
  for (std::int64_t i = 0; i < count; ++i) {
    decode(blocks.data() + i * layout.bytes, values.data() + i * layout.elements);
  }
}

}  // namespace

std::string_view element_type_name(ElementType type) {
  switch (type) {
    case ElementType::kF64: return "F64";
    case ElementType::kF32: return "F32";
    case ElementType::kF16: return "F16";
    case ElementType::kBF16: return "BF16";
    case ElementType::kQ4_0: return "Q4_0";
    case ElementType::kQ4_1: return "Q4_1";
    case ElementType::kQ5_0: return "Q5_0";
    case ElementType::kQ5_1: return "Q5_1";
    case ElementType::kQ8_0: return "Q8_0";
    case ElementType::kQ2_K: return "Q2_K";
    case ElementType::kQ3_K: return "Q3_K";
    case ElementType::kQ4_K: return "Q4_K";
    case ElementType::kQ5_K: return "Q5_K";
    case ElementType::kQ6_K: return "Q6_K";
    case ElementType::kIQ4_NL: return "IQ4_NL";
    case ElementType::kIQ4_XS: return "IQ4_XS";
  }
  return "?";
}

BlockLayout block_layout(ElementType type) {
  switch (type) {
    case ElementType::kF64: return {1, 8};
    case ElementType::kF32: return {1, 4};
    case ElementType::kF16: return {1, 2};
    case ElementType::kBF16: return {1, 2};
    case ElementType::kQ4_0: return {32, 18};
    case ElementType::kQ4_1: return {32, 20};
    case ElementType::kQ5_0: return {32, 22};
    case ElementType::kQ5_1: return {32, 24};
    case ElementType::kQ8_0: return {32, 34};
    case ElementType::kQ2_K: return {256, 84};
    case ElementType::kQ3_K: return {256, 110};
    case ElementType::kQ4_K: return {256, 144};
    case ElementType::kQ5_K: return {256, 176};
    case ElementType::kQ6_K: return {256, 210};
    case ElementType::kIQ4_NL: return {32, 18};
    case ElementType::kIQ4_XS: return {256, 136};
  }
  throw_internal_error(__FILE__, __LINE__, "type", "an element type without a layout");
}

void decode_blocks(ElementType type, std::span<const std::byte> blocks, std::span<float> values) {
  const BlockLayout layout = block_layout(type);
  const auto count = static_cast<std::int64_t>(values.size());
  CARAVAN_ASSERT(
      count % layout.elements == 0 && std::ssize(blocks) == count / layout.elements * layout.bytes,
      "{} bytes for {} elements of {}", blocks.size(), count, element_type_name(type));
  const auto each = [&](auto&& decode) { for_each_block(type, blocks, values, decode); };
  switch (type) {
    case ElementType::kF64:
      return each([](const std::byte* p, float* x) { *x = static_cast<float>(load<double>(p)); });
    case ElementType::kF32: std::memcpy(values.data(), blocks.data(), blocks.size()); return;
    case ElementType::kF16: return each([](const std::byte* p, float* x) { *x = load_half(p); });
    case ElementType::kBF16:
      return each([](const std::byte* p, float* x) { *x = bf16_to_float(load<std::uint16_t>(p)); });
    case ElementType::kQ4_0: return each(decode_q4_0);
    case ElementType::kQ4_1: return each(decode_q4_1);
    case ElementType::kQ5_0: return each(decode_q5_0);
    case ElementType::kQ5_1: return each(decode_q5_1);
    case ElementType::kQ8_0: return each(decode_q8_0);
    case ElementType::kQ2_K: return each(decode_q2_k);
    case ElementType::kQ3_K: return each(decode_q3_k);
    case ElementType::kQ4_K: return each(decode_q4_k);
    case ElementType::kQ5_K: return each(decode_q5_k);
    case ElementType::kQ6_K: return each(decode_q6_k);
    case ElementType::kIQ4_NL: return each(decode_iq4_nl);
    case ElementType::kIQ4_XS: return each(decode_iq4_xs);
  }
}

}  // namespace caravan::checkpoint
