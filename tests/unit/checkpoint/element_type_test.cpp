#include "caravan/checkpoint/element_type.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "caravan/checkpoint/source_tensor.h"
#include "caravan/core/dtype.h"
#include "caravan/core/error.h"
#include "generated_files.h"
#include "support/base64.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace caravan::checkpoint {
namespace {

using test::bytes_of;
using test::bytes_of_one;

std::vector<float> decode(ElementType type, const std::string& bytes, std::size_t count) {
  std::vector<float> values(count);
  decode_blocks(type, std::as_bytes(std::span(bytes.data(), bytes.size())), values);
  return values;
}

std::string half(float value) { return bytes_of_one(float_to_fp16(value)); }

// Codes 0..15 in the low nibbles, 15..0 in the high ones.
std::string nibbles() {
  std::string codes;
  for (int j = 0; j < 16; ++j) codes += static_cast<char>(j | (15 - j) << 4);
  return codes;
}

TEST(ElementType, DecodesPlainTypes) {
  EXPECT_EQ(decode(ElementType::kF32, bytes_of(std::vector<float>{1.5F, -2}), 2),
            (std::vector<float>{1.5F, -2}));
  EXPECT_EQ(decode(ElementType::kF64, bytes_of(std::vector<double>{0.1, -2}), 2),
            (std::vector<float>{0.1F, -2}));
  EXPECT_EQ(decode(ElementType::kF16, half(-0.25F) + half(65504), 2),
            (std::vector<float>{-0.25F, 65504}));
  EXPECT_EQ(decode(ElementType::kBF16, bytes_of_one(float_to_bf16(3.0F)), 1),
            (std::vector<float>{3}));
}

TEST(ElementType, DecodesFourBitBlocks) {
  const auto q4_0 = decode(ElementType::kQ4_0, half(0.5F) + nibbles(), 32);
  const auto q4_1 = decode(ElementType::kQ4_1, half(0.5F) + half(-1) + nibbles(), 32);
  for (int j = 0; j < 16; ++j) {
    const auto low = static_cast<std::size_t>(j);
    EXPECT_EQ(q4_0[low], 0.5F * static_cast<float>(j - 8)) << j;
    EXPECT_EQ(q4_0[low + 16], 0.5F * static_cast<float>(15 - j - 8)) << j;
    EXPECT_EQ(q4_1[low], 0.5F * static_cast<float>(j) - 1) << j;
    EXPECT_EQ(q4_1[low + 16], 0.5F * static_cast<float>(15 - j) - 1) << j;
  }
}

TEST(ElementType, DecodesFiveBitBlocks) {
  // The fifth bit is set for elements 0, 5 and 31.
  const std::string high = bytes_of_one<std::uint32_t>(1U | 1U << 5 | 1U << 31);
  const auto q5_0 = decode(ElementType::kQ5_0, half(2) + high + nibbles(), 32);
  const auto q5_1 = decode(ElementType::kQ5_1, half(2) + half(0.5F) + high + nibbles(), 32);
  for (int i = 0; i < 32; ++i) {
    const int nibble = i < 16 ? i : 15 - (i - 16);
    const int code = nibble + (i == 0 || i == 5 || i == 31 ? 16 : 0);
    EXPECT_EQ(q5_0[static_cast<std::size_t>(i)], 2 * static_cast<float>(code - 16)) << i;
    EXPECT_EQ(q5_1[static_cast<std::size_t>(i)], 2 * static_cast<float>(code) + 0.5F) << i;
  }
}

TEST(ElementType, DecodesEightBitBlocks) {
  std::string codes;
  for (int i = 0; i < 32; ++i) codes += static_cast<char>(i * 8 - 128);
  const auto values = decode(ElementType::kQ8_0, half(0.25F) + codes, 32);
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(values[static_cast<std::size_t>(i)], 0.25F * static_cast<float>(i * 8 - 128)) << i;
}

std::vector<std::byte> raw_bytes(const std::string& base64) {
  const std::string bytes = test::base64_decode(base64);
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
  return {data, data + bytes.size()};
}

// Bit for bit: products are exact, sums of two are rounded once in either implementation.
TEST(ElementType, DecodesRandomBlocksAsTheGgufPackageDoes) {
  std::ifstream in(std::string(CARAVAN_TEST_DATA) + "/quant_blocks/blocks.json");
  const auto expected = nlohmann::json::parse(in);
  std::size_t compared = 0;
  for (int i = 0; i <= static_cast<int>(ElementType::kIQ4_XS); ++i) {
    const auto type = static_cast<ElementType>(i);
    if (!is_quantized(type)) continue;
    const std::string name(element_type_name(type));
    const std::vector<float> values = test::base64_floats(expected.at(name).at("values"));
    std::vector<float> got(values.size());
    decode_blocks(type, raw_bytes(expected.at(name).at("blocks")), got);
    EXPECT_EQ(got, values) << name;
    ++compared;
  }
  EXPECT_EQ(compared, expected.size());
}

TEST(ReadRectangle, CutsBlocksAnywhere) {
  const test::TemporaryFolder folder;
  std::string content = "skipped!";
  std::vector<float> all;
  for (int block = 0; block < 6; ++block) {  // 3 rows of 64
    const std::string bytes = half(0.5F + static_cast<float>(block)) + nibbles();
    content += bytes;
    for (const float value : decode(ElementType::kQ4_0, bytes, 32)) all.push_back(value);
  }
  io::InputFile file(folder.write("q", content));
  const SourceTensor tensor = {"t", ElementType::kQ4_0, {3, 64}, 0, 8, 108};
  for (const Range rows : {Range{0, 3}, Range{1, 2}}) {
    for (const Range columns :
         {Range{0, 64}, Range{0, 1}, Range{31, 33}, Range{5, 60}, Range{32, 64}}) {
      std::vector<float> got(static_cast<std::size_t>(rows.size() * columns.size()));
      read_rectangle(file, tensor, rows, columns, got.data());
      std::size_t i = 0;
      for (std::int64_t row = rows.begin; row < rows.end; ++row) {
        for (std::int64_t column = columns.begin; column < columns.end; ++column)
          EXPECT_EQ(got[i++], all[static_cast<std::size_t>(row * 64 + column)])
              << "row " << row << " column " << column;
      }
    }
  }
}

TEST(CheckedElements, RefusesImpossibleShapes) {
  EXPECT_EQ(checked_elements({3, 4}, "t"), 12);
  EXPECT_EQ(checked_elements({}, "t"), 1);
  test::expect_error<InputError>([] { checked_elements({3, 0}, "t"); }, "impossible shape [3, 0]");
  test::expect_error<InputError>([] { checked_elements({-1}, "t"); }, "impossible shape");
  test::expect_error<InputError>(
      [] {
        checked_elements({std::int64_t{1} << 40, std::int64_t{1} << 40}, "t");
      },
      "impossible shape");
  test::expect_error<InputError>([] { checked_bytes(ElementType::kQ4_0, 66, 33, "t"); },
                                 "rows of 33 elements, expected whole blocks of 32");
}

}  // namespace
}  // namespace caravan::checkpoint
