// Rows as int8 and int4: GGUF's blocks taken over exactly, and codes of little error.

#include "quantizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace caravan::checkpoint {
namespace {

struct Groups {
  Groups(std::int64_t count, DType its_dtype)
      : dtype(its_dtype),
        codes(static_cast<std::size_t>(count * (its_dtype == DType::kInt8 ? 32 : 16))),
        scales(static_cast<std::size_t>(count)),
        minimums(static_cast<std::size_t>(count)) {}
  QuantizedTarget target() {
    return {reinterpret_cast<std::byte*>(codes.data()), reinterpret_cast<std::byte*>(scales.data()),
            reinterpret_cast<std::byte*>(minimums.data())};
  }
  /// By the formulas of core/dtype.h.
  std::vector<float> values() const {
    std::vector<float> result;
    for (std::size_t i = 0; i < scales.size() * 32; ++i) {
      const float scale = fp16_to_float(scales[i / 32]);
      if (dtype == DType::kInt8) {
        result.push_back(static_cast<float>(static_cast<std::int8_t>(codes[i])) * scale);
      } else {
        const int code = i % 2 == 0 ? codes[i / 2] & 15 : codes[i / 2] >> 4;
        result.push_back(
            std::fma(static_cast<float>(code), scale, fp16_to_float(minimums[i / 32])));
      }
    }
    return result;
  }
  DType dtype;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint16_t> scales;
  std::vector<std::uint16_t> minimums;
};

double squared_error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - double{b[i]}, 2);
  return sum;
}

std::vector<float> random_values(std::mt19937& random, std::int64_t count, float deviation) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

TEST(Quantizer, TakesBlocksOverExactly) {
  std::mt19937 random(1);
  constexpr std::int64_t kBlocks = 300;
  struct Form {
    ElementType type;
    DType dtype;
  };
  for (const Form& form : {Form{ElementType::kQ8_0, DType::kInt8},
                           {ElementType::kQ4_0, DType::kInt8},
                           {ElementType::kQ4_0, DType::kInt4},
                           {ElementType::kQ4_1, DType::kInt4}}) {
    ASSERT_TRUE(has_quantized_form(form.type, form.dtype));
    const BlockLayout layout = block_layout(form.type);
    std::vector<std::byte> blocks(static_cast<std::size_t>(kBlocks * layout.bytes));
    for (std::byte& byte : blocks) byte = static_cast<std::byte>(random());
    for (std::int64_t i = 0; i < kBlocks; ++i) {
      // Scales of any sign and size, subnormal ones too, below what eightfold is infinite.
      for (int half = 0; half < (form.type == ElementType::kQ4_1 ? 2 : 1); ++half) {
        const auto bits = static_cast<std::uint16_t>((random() % 0x6800) | (random() % 2) << 15);
        std::memcpy(blocks.data() + i * layout.bytes + 2 * half, &bits, 2);
      }
    }
    std::vector<float> expected(kBlocks * 32);
    decode_blocks(form.type, blocks, expected);
    Groups groups(kBlocks, form.dtype);
    ASSERT_EQ(import_blocks(form.type, blocks.data(), kBlocks, form.dtype, groups.target()),
              std::nullopt);
    const std::vector<float> got = groups.values();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(got[i], expected[i])
          << element_type_name(form.type) << " as " << dtype_name(form.dtype) << ", value " << i;
    }
  }
  EXPECT_FALSE(has_quantized_form(ElementType::kQ4_1, DType::kInt8));
  EXPECT_FALSE(has_quantized_form(ElementType::kQ8_0, DType::kInt4));
  EXPECT_FALSE(has_quantized_form(ElementType::kQ8_0, DType::kBFloat16));
}

TEST(Quantizer, TellsBlocksThatAreNotFinite) {
  // 0x7000 is 8192: times -8 infinite.
  for (const std::uint16_t bits :
       {std::uint16_t{0x7c00}, std::uint16_t{0xfe00}, std::uint16_t{0x7000}}) {
    std::vector<std::byte> blocks(3 * 18);
    std::memcpy(blocks.data() + 2 * 18, &bits, 2);
    Groups groups(3, DType::kInt4);
    EXPECT_EQ(import_blocks(ElementType::kQ4_0, blocks.data(), 3, DType::kInt4, groups.target()),
              64);
  }
}

TEST(Quantizer, Int8IsWithinHalfAStep) {
  std::mt19937 random(2);
  for (const float deviation : {1e-4F, 0.05F, 3.0F, 5000.0F}) {
    const std::vector<float> values = random_values(random, 3200, deviation);
    Groups groups(100, DType::kInt8);
    ASSERT_EQ(quantize_values(values.data(), 3200, DType::kInt8, groups.target()), std::nullopt);
    const std::vector<float> got = groups.values();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float scale = fp16_to_float(groups.scales[i / 32]);
      // The scale itself is rounded to 11 bits, or to the subnormal step.
      ASSERT_NEAR(got[i], values[i], 0.5F * scale + 127 * std::max(scale / 2048, 0x1p-25F))
          << deviation << ", " << i;
    }
  }
}

TEST(Quantizer, Int4HasLessErrorThanTheWholeRange) {
  std::mt19937 random(3);
  double error = 0;
  double plain_error = 0;
  for (int round = 0; round < 200; ++round) {
    const std::vector<float> values = random_values(random, 32, 0.05F);
    Groups groups(1, DType::kInt4);
    ASSERT_EQ(quantize_values(values.data(), 32, DType::kInt4, groups.target()), std::nullopt);
    error += squared_error(groups.values(), values);
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    const float scale = (*most - *least) / 15;
    for (const float value : values) {
      const float nearest = *least + scale * std::round((value - *least) / scale);
      plain_error += std::pow(double{nearest} - double{value}, 2);
    }
  }
  EXPECT_LT(error, 0.9 * plain_error);
}

TEST(Quantizer, KeepsWhatHasAnExactForm) {
  std::vector<float> constant(32, 0.375F);
  std::vector<float> zeros(32, 0.0F);
  std::vector<float> steps;
  for (int i = 0; i < 32; ++i) steps.push_back(static_cast<float>(i % 16) * 0.25F - 1.5F);
  for (const std::vector<float>& values : {constant, zeros, steps}) {
    Groups groups(1, DType::kInt4);
    ASSERT_EQ(quantize_values(values.data(), 32, DType::kInt4, groups.target()), std::nullopt);
    EXPECT_EQ(groups.values(), values);
  }
  std::vector<float> codes;
  for (int i = 0; i < 32; ++i) codes.push_back(static_cast<float>(8 * i - 121) * 0.5F);
  Groups groups(1, DType::kInt8);
  codes[31] = 63.5F;
  ASSERT_EQ(quantize_values(codes.data(), 32, DType::kInt8, groups.target()), std::nullopt);
  EXPECT_EQ(groups.values(), codes);
  ASSERT_EQ(quantize_values(zeros.data(), 32, DType::kInt8, groups.target()), std::nullopt);
  EXPECT_EQ(groups.values(), zeros);
}

TEST(Quantizer, TellsGroupsThatAreTooLargeForTheirScales) {
  for (const DType dtype : {DType::kInt8, DType::kInt4}) {
    for (const float large : {1e7F, -3e38F, 3e38F}) {
      std::vector<float> values(96, 0.1F);
      values[40] = large;
      Groups groups(3, dtype);
      EXPECT_EQ(quantize_values(values.data(), 96, dtype, groups.target()), 32)
          << dtype_name(dtype) << " " << large;
    }
    std::vector<float> tiny(32, 1e-42F);
    Groups groups(1, dtype);
    EXPECT_EQ(quantize_values(tiny.data(), 32, dtype, groups.target()), std::nullopt);
    EXPECT_EQ(groups.values(), std::vector<float>(32, 0.0F));
  }
}

}  // namespace
}  // namespace caravan::checkpoint
