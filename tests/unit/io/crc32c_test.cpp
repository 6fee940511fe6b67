#include "caravan/io/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string_view>
#include <vector>

namespace caravan::io {
namespace {

std::vector<std::byte> random_bytes(std::size_t count) {
  std::mt19937 generator(20261201);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(generator());
  return bytes;
}

std::uint32_t of_text(std::string_view text) {
  return crc32c(std::as_bytes(std::span(text.data(), text.size())));
}

// RFC 3720, B.4 (given there byte by byte), and the check value of the polynomial's catalogue
// entry.
TEST(Crc32c, EqualsThePublishedVectors) {
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0})), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xff})), 0x62a8ab43U);
  std::vector<std::byte> counting(32);
  for (std::size_t i = 0; i < 32; ++i) counting[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc32c(counting), 0x46dd794eU);
  std::reverse(counting.begin(), counting.end());
  EXPECT_EQ(crc32c(counting), 0x113fdb5cU);
  EXPECT_EQ(of_text("123456789"), 0xe3069283U);
  EXPECT_EQ(of_text(""), 0U);
}

TEST(Crc32c, InstructionAndTablesAgreeAtEveryLengthAndAlignment) {
  const std::vector<std::byte> bytes = random_bytes(40000);
  const std::span<const std::byte> all(bytes);
  for (const std::size_t length : {0, 1, 7, 8, 9, 63, 1023, 1024, 4095, 4096, 4097, 12345, 39990}) {
    for (std::size_t start = 0; start < 9; ++start) {
      const auto piece = all.subspan(start, length);
      EXPECT_EQ(crc32c(piece), crc32c_portable(piece)) << "length " << length << " at " << start;
    }
  }
}

TEST(Crc32c, ContinuesOverPieces) {
  const std::vector<std::byte> bytes = random_bytes(20000);
  const std::span<const std::byte> all(bytes);
  for (const std::size_t cut : {0, 1, 5, 4096, 19999, 20000}) {
    EXPECT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), crc32c(all)) << "cut at " << cut;
    EXPECT_EQ(crc32c_portable(all.subspan(cut), crc32c_portable(all.first(cut))), crc32c(all));
  }
}

}  // namespace
}  // namespace caravan::io
