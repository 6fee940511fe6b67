#include "caravan/io/crc32.h"

#include "crc_tables.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace caravan::io {
namespace {

constexpr std::uint32_t kPolynomial = 0xedb88320U;  // reflected form of 0x04c11db7

using Tables = CrcTables<kPolynomial>;

// Polynomials over GF(2) modulo the CRC's, reflected: the highest bit is the coefficient of 1.
constexpr std::uint32_t kOne = 1U << 31;

constexpr std::uint32_t times_x(std::uint32_t a) {
  return (a >> 1) ^ ((a & 1U) != 0 ? kPolynomial : 0U);
}

constexpr std::uint32_t product(std::uint32_t a, std::uint32_t b) {
  std::uint32_t result = 0;
  for (; a != 0; a <<= 1, b = times_x(b)) {
    if ((a & kOne) != 0) result ^= b;
  }
  return result;
}

/// base ^ exponent
constexpr std::uint32_t power(std::uint32_t base, std::uint64_t exponent) {
  std::uint32_t result = kOne;
  for (; exponent != 0; exponent >>= 1, base = product(base, base)) {
    if ((exponent & 1U) != 0) result = product(result, base);
  }
  return result;
}

constexpr std::uint32_t kX = kOne >> 1;
constexpr std::uint32_t kX8 = kOne >> 8;

#if defined(__x86_64__)

// "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009): a block
// of 16 bytes is moved over `bits` bits by a product with two constants, one for each half. The
// shift by one is what a product of reflected numbers lacks.
constexpr std::int64_t fold_constant(std::uint64_t bits) {
  return static_cast<std::int64_t>(std::uint64_t{power(kX, bits)} << 1);
}

constexpr std::size_t kBlock = 16;
constexpr std::size_t kBlocks = 4;  // at a time: the product has a latency of several cycles

__attribute__((target("pclmul,sse4.1"))) inline __m128i load(const std::byte* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

__attribute__((target("pclmul,sse4.1"))) inline __m128i fold(__m128i block, __m128i constants,
                                                             __m128i onto) {
  const __m128i low = _mm_clmulepi64_si128(block, constants, 0x00);
  const __m128i high = _mm_clmulepi64_si128(block, constants, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), onto);
}

/// Works on the inverted register. @pre size >= kBlocks * kBlock
__attribute__((target("pclmul,sse4.1"))) std::uint32_t folded(std::uint32_t crc, const std::byte* p,
                                                              std::size_t size) {
  constexpr std::size_t kStep = kBlocks * kBlock;
  const __m128i over_step =
      _mm_set_epi64x(fold_constant(8 * kStep - 32), fold_constant(8 * kStep + 32));
  const __m128i over_block =
      _mm_set_epi64x(fold_constant(8 * kBlock - 32), fold_constant(8 * kBlock + 32));
  __m128i blocks[kBlocks];
  for (std::size_t i = 0; i < kBlocks; ++i) blocks[i] = load(p + i * kBlock);
  blocks[0] = _mm_xor_si128(blocks[0], _mm_cvtsi32_si128(static_cast<int>(crc)));
  for (p += kStep, size -= kStep; size >= kStep; p += kStep, size -= kStep) {
    for (std::size_t i = 0; i < kBlocks; ++i)
      blocks[i] = fold(blocks[i], over_step, load(p + i * kBlock));
  }
  __m128i last = blocks[0];
  for (std::size_t i = 1; i < kBlocks; ++i) last = fold(last, over_block, blocks[i]);
  for (; size >= kBlock; p += kBlock, size -= kBlock) last = fold(last, over_block, load(p));
  // What is left stands for all before it.
  std::byte bytes[kBlock];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes), last);
  return Tables::feed(Tables::feed(0, bytes, kBlock), p, size);
}

#endif

}  // namespace

std::uint32_t crc32_portable(std::span<const std::byte> bytes, std::uint32_t previous) {
  return ~Tables::feed(~previous, bytes.data(), bytes.size());
}

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t previous) {
#if defined(__x86_64__)
  if (bytes.size() >= kBlocks * kBlock && __builtin_cpu_supports("pclmul") &&
      __builtin_cpu_supports("sse4.1"))
    return ~folded(~previous, bytes.data(), bytes.size());
#endif
  return crc32_portable(bytes, previous);
}

std::uint32_t crc32_joined(std::uint32_t first, std::uint32_t second, std::int64_t second_bytes) {
  return product(power(kX8, static_cast<std::uint64_t>(second_bytes)), first) ^ second;
}

}  // namespace caravan::io
