#include "caravan/io/crc32.h"

#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

namespace caravan::io {
namespace {

std::vector<std::byte> random_bytes(std::size_t count) {
  std::mt19937 generator(20261202);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(generator());
  return bytes;
}

// The check value of the polynomial's catalogue entry, and values of Python's zlib.
TEST(Crc32, EqualsThePublishedVectors) {
  const auto of_text = [](std::string_view text) {
    return crc32(std::as_bytes(std::span(text.data(), text.size())));
  };
  EXPECT_EQ(of_text("123456789"), 0xcbf43926U);
  EXPECT_EQ(of_text(""), 0U);
  EXPECT_EQ(crc32(std::vector<std::byte>(1000, std::byte{0})), 0x60b1780U);
  std::vector<std::byte> counting(256);
  for (std::size_t i = 0; i < counting.size(); ++i) counting[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc32(counting), 0x29058c73U);
}

TEST(Crc32, InstructionAndTablesAgreeAtEveryLengthAndAlignment) {
  const std::vector<std::byte> bytes = random_bytes(10000);
  const std::span<const std::byte> all(bytes);
  for (std::size_t length = 0; length < 300; ++length) {
    for (std::size_t start = 0; start < 17; start += 4) {
      const auto piece = all.subspan(start, length);
      EXPECT_EQ(crc32(piece, 77), crc32_portable(piece, 77)) << length << " bytes at " << start;
    }
  }
  EXPECT_EQ(crc32(all), crc32_portable(all));
}

TEST(Crc32, ContinuesOverPieces) {
  const std::vector<std::byte> bytes = random_bytes(5000);
  const std::span<const std::byte> all(bytes);
  for (const std::size_t cut : {0, 1, 63, 64, 1024, 4999, 5000}) {
    EXPECT_EQ(crc32(all.subspan(cut), crc32(all.first(cut))), crc32(all)) << "cut at " << cut;
    EXPECT_EQ(crc32_joined(crc32(all.first(cut)), crc32(all.subspan(cut)),
                           static_cast<std::int64_t>(bytes.size() - cut)),
              crc32(all))
        << "cut at " << cut;
  }
}

TEST(Crc32, IsTheSumOfPiecesInAnyOrder) {
  const std::vector<std::byte> bytes = random_bytes(5000);
  const std::span<const std::byte> all(bytes);
  std::uint32_t sum = 0;
  for (const auto& [begin, end] : {std::pair{3000, 4100}, {0, 1}, {4100, 5000}, {1, 3000}}) {
    const auto piece =
        all.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    sum ^= crc32_joined(crc32(piece), 0, 5000 - end);
  }
  EXPECT_EQ(sum, crc32(all));
}

TEST(Crc32, JoinsOverLongDistances) {
  // 64 MiB of zeros behind a byte, by doubling.
  const std::byte one{1};
  std::uint32_t zeros = crc32(std::vector<std::byte>(1, std::byte{0}));
  std::int64_t count = 1;
  for (; count < 1 << 26; count *= 2) zeros = crc32_joined(zeros, zeros, count);
  std::uint32_t expected = crc32({&one, 1});
  const std::vector<std::byte> mebibyte(1 << 20, std::byte{0});
  for (int i = 0; i < 64; ++i) expected = crc32(mebibyte, expected);
  EXPECT_EQ(crc32_joined(crc32({&one, 1}), zeros, count), expected);
}

}  // namespace
}  // namespace caravan::io
