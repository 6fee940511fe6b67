#include "k_quants.h"

#include <array>
#include <cstdint>

#include "block_fields.h"

namespace caravan::checkpoint {
namespace {

using namespace block_fields;

// Levels of the four-bit codes of IQ4_NL and IQ4_XS, a part of the format (ggml-common.h).
constexpr std::array<float, 16> kLevels = {-127, -104, -83, -65, -49, -35, -22, -10,
                                           1,    13,   25,  38,  53,  69,  89,  113};

struct ScaleAndMinimum {
  float scale;
  float minimum;
};

// Q4_K and Q5_K: six-bit scale and minimum of sub-block `s` (0 to 7), packed into 12 bytes.
ScaleAndMinimum packed_scale(const std::byte* a, int s, float d, float dmin) {
  int scale = 0;
  int minimum = 0;
  if (s < 4) {
    scale = bits(a[s], 0, 6);
    minimum = bits(a[s + 4], 0, 6);
  } else {
    scale = low_nibble(a[s + 4]) | bits(a[s - 4], 6, 2) << 4;
    minimum = high_nibble(a[s + 4]) | bits(a[s], 6, 2) << 4;
  }
  return {d * static_cast<float>(scale), dmin * static_cast<float>(minimum)};
}

}  // namespace

// scales[16] qs[64] d dmin; element 128n + 32j + 16t + l has its code in bits 2j of qs[32n+16t+l].
void decode_q2_k(const std::byte* block, float* x) {
  const std::byte* scales = block;
  const std::byte* qs = block + 16;
  const float d = load_half(block + 80);
  const float dmin = load_half(block + 82);
  for (int s = 0; s < 16; ++s) {  // sub-block 8n + 2j + t
    const int n = s / 8;
    const int j = s / 2 % 4;
    const std::byte* codes = qs + 32 * n + 16 * (s % 2);
    const float scale = d * static_cast<float>(low_nibble(scales[s]));
    const float minimum = dmin * static_cast<float>(high_nibble(scales[s]));
    for (int l = 0; l < 16; ++l)
      x[16 * s + l] = scale * static_cast<float>(bits(codes[l], 2 * j, 2)) - minimum;
  }
}

// hmask[32] qs[64] scales[12] d; codes as in Q2_K, their third bit is bit 4n+j of hmask[16t+l].
void decode_q3_k(const std::byte* block, float* x) {
  const std::byte* high = block;
  const std::byte* qs = block + 32;
  const std::byte* scales = block + 96;
  const float d = load_half(block + 108);
  for (int s = 0; s < 16; ++s) {
    const int n = s / 8;
    const int j = s / 2 % 4;
    const int low_scale = s < 8 ? low_nibble(scales[s]) : high_nibble(scales[s - 8]);
    const int high_scale = bits(scales[8 + s % 4], 2 * (s / 4), 2);
    const float scale = d * static_cast<float>((low_scale | high_scale << 4) - 32);
    for (int l = 0; l < 16; ++l) {
      const int at = 16 * (s % 2) + l;
      const int code = bits(qs[32 * n + at], 2 * j, 2) - 4 + 4 * bits(high[at], 4 * n + j, 1);
      x[16 * s + l] = scale * static_cast<float>(code);
    }
  }
}

// d dmin scales[12] qs[128]; sub-blocks 2p and 2p+1 are the low and high nibbles of qs[32p...].
void decode_q4_k(const std::byte* block, float* x) {
  const float d = load_half(block);
  const float dmin = load_half(block + 2);
  const std::byte* qs = block + 16;
  for (int s = 0; s < 8; ++s) {
    const ScaleAndMinimum sub = packed_scale(block + 4, s, d, dmin);
    const std::byte* codes = qs + 32 * (s / 2);
    for (int l = 0; l < 32; ++l) {
      const int code = s % 2 == 0 ? low_nibble(codes[l]) : high_nibble(codes[l]);
      x[32 * s + l] = sub.scale * static_cast<float>(code) - sub.minimum;
    }
  }
}

// d dmin scales[12] qh[32] qs[128]; as Q4_K with bit s of qh[l] as fifth bit.
void decode_q5_k(const std::byte* block, float* x) {
  const float d = load_half(block);
  const float dmin = load_half(block + 2);
  const std::byte* high = block + 16;
  const std::byte* qs = block + 48;
  for (int s = 0; s < 8; ++s) {
    const ScaleAndMinimum sub = packed_scale(block + 4, s, d, dmin);
    const std::byte* codes = qs + 32 * (s / 2);
    for (int l = 0; l < 32; ++l) {
      const int low = s % 2 == 0 ? low_nibble(codes[l]) : high_nibble(codes[l]);
      const int code = low | bits(high[l], s, 1) << 4;
      x[32 * s + l] = sub.scale * static_cast<float>(code) - sub.minimum;
    }
  }
}

// ql[128] qh[64] scales[16] d; quarter q of half n has nibbles of ql[64n + 32(q%2)...] and two bits
// each of qh[32n...].
void decode_q6_k(const std::byte* block, float* x) {
  const std::byte* ql = block;
  const std::byte* qh = block + 128;
  const std::byte* scales = block + 192;
  const float d = load_half(block + 208);
  for (int part = 0; part < 8; ++part) {
    const int n = part / 4;
    const int quarter = part % 4;
    for (int l = 0; l < 32; ++l) {
      const std::byte packed = ql[64 * n + 32 * (quarter % 2) + l];
      const int low = quarter < 2 ? low_nibble(packed) : high_nibble(packed);
      const int code = (low | bits(qh[32 * n + l], 2 * quarter, 2) << 4) - 32;
      const auto scale = load<std::int8_t>(scales + 2 * part + l / 16);
      x[32 * part + l] = d * static_cast<float>(scale) * static_cast<float>(code);
    }
  }
}

// d qs[16]
void decode_iq4_nl(const std::byte* block, float* x) {
  const float d = load_half(block);
  const std::byte* qs = block + 2;
  for (int l = 0; l < 16; ++l) {
    x[l] = d * kLevels[static_cast<std::size_t>(low_nibble(qs[l]))];
    x[l + 16] = d * kLevels[static_cast<std::size_t>(high_nibble(qs[l]))];
  }
}

// d scales_h[2] scales_l[4] qs[128]; eight sub-blocks as in IQ4_NL with six-bit scales.
void decode_iq4_xs(const std::byte* block, float* x) {
  const float d = load_half(block);
  const auto scales_high = load<std::uint16_t>(block + 2);
  const std::byte* scales_low = block + 4;
  const std::byte* qs = block + 8;
  for (int s = 0; s < 8; ++s) {
    const int low = bits(scales_low[s / 2], 4 * (s % 2), 4);
    const int high = scales_high >> (2 * s) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    for (int l = 0; l < 16; ++l) {
      const std::byte packed = qs[16 * s + l];
      x[32 * s + l] = scale * kLevels[static_cast<std::size_t>(low_nibble(packed))];
      x[32 * s + l + 16] = scale * kLevels[static_cast<std::size_t>(high_nibble(packed))];
    }
  }
}

}  // namespace caravan::checkpoint
