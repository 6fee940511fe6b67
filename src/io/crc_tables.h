#pragma once
// Reflected 32-bit CRCs by tables, for any polynomial.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace caravan::io {

inline std::uint64_t load_u64(const std::byte* p) {
  std::uint64_t value = 0;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

template <std::uint32_t kPolynomial>
class CrcTables {
 public:
  /// Feeds bytes to the register, which is the inverted checksum.
  static std::uint32_t feed(std::uint32_t crc, const std::byte* p, std::size_t size) {
    for (; size >= 8; p += 8, size -= 8) {
      const std::uint64_t word = load_u64(p) ^ crc;
      crc = 0;
      for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xffU];
    }
    for (; size > 0; ++p, --size) {
      crc = (crc >> 8) ^ kTables[0][(crc ^ std::to_integer<std::uint32_t>(*p)) & 0xffU];
    }
    return crc;
  }

 private:
  using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

  static constexpr Tables make() {
    Tables tables{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      std::uint32_t crc = byte;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? kPolynomial : 0U);
      tables[0][byte] = crc;
    }
    for (std::size_t k = 1; k < 8; ++k) {
      for (std::size_t byte = 0; byte < 256; ++byte) {
        const std::uint32_t before = tables[k - 1][byte];
        tables[k][byte] = (before >> 8) ^ tables[0][before & 0xffU];
      }
    }
    return tables;
  }

  static constexpr Tables kTables = make();
};

}  // namespace caravan::io
