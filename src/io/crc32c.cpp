#include "caravan/io/crc32c.h"

#include <array>

#include "crc_tables.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace caravan::io {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78U;  // reflected form of 0x1edc6f41

using Tables = CrcTables<kPolynomial>;

#if defined(__x86_64__)

// Bytes of one of four interleaved streams: the instruction has a latency of three cycles and a
// throughput of one, so that independent streams are needed to keep it busy.
constexpr std::size_t kStreamBytes = 1024;

// Effect of feeding `kStreamBytes` zero bytes: a linear map on the register, as four byte tables.
using ShiftTables = std::array<std::array<std::uint32_t, 256>, 4>;

using BitMatrix = std::array<std::uint32_t, 32>;

constexpr std::uint32_t apply(const BitMatrix& matrix, std::uint32_t vector) {
  std::uint32_t result = 0;
  for (std::size_t bit = 0; bit < 32; ++bit) {
    if ((vector >> bit & 1U) != 0) result ^= matrix[bit];
  }
  return result;
}

constexpr ShiftTables make_shift_tables() {
  BitMatrix matrix{};  // one zero bit
  matrix[0] = kPolynomial;
  for (std::size_t bit = 1; bit < 32; ++bit) matrix[bit] = 1U << (bit - 1);
  for (std::size_t bits = 1; bits < 8 * kStreamBytes; bits *= 2) {  // squared: twice as many bits
    BitMatrix square{};
    for (std::size_t bit = 0; bit < 32; ++bit) square[bit] = apply(matrix, matrix[bit]);
    matrix = square;
  }
  ShiftTables tables{};
  for (std::size_t k = 0; k < 4; ++k) {
    for (std::uint32_t byte = 0; byte < 256; ++byte) tables[k][byte] = apply(matrix, byte << 8 * k);
  }
  return tables;
}

constexpr ShiftTables kShiftTables = make_shift_tables();

std::uint64_t shift_stream(std::uint64_t crc) {
  return kShiftTables[0][crc & 0xffU] ^ kShiftTables[1][crc >> 8 & 0xffU] ^
         kShiftTables[2][crc >> 16 & 0xffU] ^ kShiftTables[3][crc >> 24 & 0xffU];
}

// Works on the inverted register.
__attribute__((target("sse4.2"))) std::uint32_t sse42_raw(std::uint32_t crc32, const std::byte* p,
                                                          std::size_t size) {
  std::uint64_t crc = crc32;
  for (; size >= 4 * kStreamBytes; p += 4 * kStreamBytes, size -= 4 * kStreamBytes) {
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    std::uint64_t fourth = 0;
    for (std::size_t i = 0; i < kStreamBytes; i += 8) {
      crc = _mm_crc32_u64(crc, load_u64(p + i));
      second = _mm_crc32_u64(second, load_u64(p + kStreamBytes + i));
      third = _mm_crc32_u64(third, load_u64(p + 2 * kStreamBytes + i));
      fourth = _mm_crc32_u64(fourth, load_u64(p + 3 * kStreamBytes + i));
    }
    crc = shift_stream(shift_stream(shift_stream(crc) ^ second) ^ third) ^ fourth;
  }
  for (; size >= 8; p += 8, size -= 8) crc = _mm_crc32_u64(crc, load_u64(p));
  auto tail = static_cast<std::uint32_t>(crc);
  for (; size > 0; ++p, --size) tail = _mm_crc32_u8(tail, std::to_integer<unsigned char>(*p));
  return tail;
}

#endif

}  // namespace

std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t previous) {
  return ~Tables::feed(~previous, bytes.data(), bytes.size());
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~sse42_raw(~previous, bytes.data(), bytes.size());
#endif
  return crc32c_portable(bytes, previous);
}

}  // namespace caravan::io
