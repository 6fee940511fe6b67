#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "caravan/core/dtype.h"

namespace caravan {
namespace {

TEST(DType, NamesRoundTrip) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
  }
  EXPECT_FALSE(parse_dtype("float"));
  EXPECT_EQ(element_bytes(DType::kFloat32), 4);
  EXPECT_EQ(element_bytes(DType::kFloat16), 2);
}

// _Float16 is the compiler's own IEEE binary16: an independent reference for all 65536 values.
TEST(Fp16, ExpandsEveryValueAsTheCompilerDoes) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float expected = static_cast<float>(std::bit_cast<_Float16>(half));
    const float found = fp16_to_float(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(found)) << bits;
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(found), std::bit_cast<std::uint32_t>(expected))
          << bits;
    }
  }
}

TEST(Fp16, RoundsAsTheCompilerDoes) {
  for (std::uint64_t step = 0; step < (1U << 22); ++step) {
    const auto bits = static_cast<std::uint32_t>(step * 1021);
    const float value = std::bit_cast<float>(bits);
    if (std::isnan(value)) continue;
    const auto expected = std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
    ASSERT_EQ(float_to_fp16(value), expected) << value;
  }
  EXPECT_TRUE(std::isnan(fp16_to_float(float_to_fp16(std::nanf("")))));
}

TEST(Bf16, RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(float_to_bf16(1.0F), 0x3f80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808000U)), 0x3f80);  // tie to even, down
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f818000U)), 0x3f82);  // tie to even, up
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808001U)), 0x3f81);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80);  // overflow
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(0x7f800001U)))));
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = bf16_to_float(static_cast<std::uint16_t>(bits));
    if (!std::isnan(value)) {
      EXPECT_EQ(float_to_bf16(value), bits);
    }
  }
}

TEST(LoadElement, ReadsUnalignedElementsOfEachType) {
  alignas(8) unsigned char bytes[16] = {};
  const float value = -2.5F;
  std::memcpy(bytes + 1 + 4, &value, 4);
  EXPECT_EQ(load_element(bytes + 1, DType::kFloat32, 1), -2.5F);
  const std::uint16_t half = float_to_fp16(0.75F);
  std::memcpy(bytes + 1 + 2, &half, 2);
  EXPECT_EQ(load_element(bytes + 1, DType::kFloat16, 1), 0.75F);
  const std::uint16_t brain = float_to_bf16(3.0F);
  std::memcpy(bytes + 1 + 6, &brain, 2);
  EXPECT_EQ(load_element(bytes + 1, DType::kBFloat16, 3), 3.0F);
}

}  // namespace
}  // namespace caravan
