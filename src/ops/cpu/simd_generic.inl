// 16 lanes of float32 in plain C++: the reference of the vector layer. Every function here has the
// same result, bit for bit, as its namesake in simd_avx2.inl and simd_avx512.inl.

constexpr int kTileRows = 2;
constexpr int kTileVecs = 1;
/// Vectors of outputs in flight for a product of few rows.
constexpr int vecs_for_rows(int) { return 1; }

/// Tile of the bf16 products: two chains for each output.
constexpr int kChainRows = 2;
constexpr int kChainVecs = 1;

/// Chains in flight that keep the FMA units busy.
constexpr int kPeakChains = 2;

struct Vec {
  float lane[16];
};

template <class Function>
CARAVAN_INLINE Vec map_lanes(const Function& function) {
  Vec result;
  for (int i = 0; i < 16; ++i) result.lane[i] = function(i);
  return result;
}

CARAVAN_INLINE std::uint32_t float_bits(float value) {
  std::uint32_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}

CARAVAN_INLINE float bits_float(std::uint32_t bits) {
  float value = 0;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

CARAVAN_INLINE float half_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fU;
  const std::uint32_t mantissa = half & 0x3ffU;
  if (exponent == 0) return bits_float(float_bits(static_cast<float>(mantissa) * 0x1p-24F) | sign);
  // The hardware's conversion makes a signalling NaN quiet.
  if (exponent == 0x1f)
    return bits_float(sign | 0x7f800000U | (mantissa << 13) | (mantissa != 0 ? 0x400000U : 0U));
  return bits_float(sign | ((exponent + 112U) << 23) | (mantissa << 13));
}

CARAVAN_INLINE Vec broadcast(float value) {
  return map_lanes([&](int) { return value; });
}
CARAVAN_INLINE Vec zero() { return broadcast(0.0F); }
CARAVAN_INLINE Vec load(const float* source) {
  return map_lanes([&](int i) { return source[i]; });
}
CARAVAN_INLINE Vec load(const BFloat16* source) {
  return map_lanes(
      [&](int i) { return bits_float(static_cast<std::uint32_t>(source[i].bits) << 16); });
}
/// Even and odd elements of 32 consecutive ones.
CARAVAN_INLINE Vec load_even(const BFloat16* source) {
  return map_lanes(
      [&](int i) { return bits_float(static_cast<std::uint32_t>(source[2 * i].bits) << 16); });
}
CARAVAN_INLINE Vec load_odd(const BFloat16* source) {
  return map_lanes(
      [&](int i) { return bits_float(static_cast<std::uint32_t>(source[2 * i + 1].bits) << 16); });
}
CARAVAN_INLINE Vec load(const Float16* source) {
  return map_lanes([&](int i) { return half_float(source[i].bits); });
}
CARAVAN_INLINE Vec load(const std::int8_t* source) {
  return map_lanes([&](int i) { return static_cast<float>(source[i]); });
}
/// The lower and the upper halves of 16 bytes.
CARAVAN_INLINE void load_halves(const std::uint8_t* source, Vec& lower, Vec& upper) {
  lower = map_lanes([&](int i) { return static_cast<float>(source[i] & 0x0fU); });
  upper = map_lanes([&](int i) { return static_cast<float>(source[i] >> 4); });
}
CARAVAN_INLINE Vec load_partial(const float* source, std::int64_t count) {
  return map_lanes([&](int i) { return i < count ? source[i] : 0.0F; });
}
CARAVAN_INLINE void store(float* target, Vec value) {
  for (int i = 0; i < 16; ++i) target[i] = value.lane[i];
}
CARAVAN_INLINE void store_partial(float* target, Vec value, std::int64_t count) {
  for (int i = 0; i < 16 && i < count; ++i) target[i] = value.lane[i];
}

CARAVAN_INLINE Vec add(Vec a, Vec b) {
  return map_lanes([&](int i) { return a.lane[i] + b.lane[i]; });
}
CARAVAN_INLINE Vec sub(Vec a, Vec b) {
  return map_lanes([&](int i) { return a.lane[i] - b.lane[i]; });
}
CARAVAN_INLINE Vec mul(Vec a, Vec b) {
  return map_lanes([&](int i) { return a.lane[i] * b.lane[i]; });
}
CARAVAN_INLINE Vec div(Vec a, Vec b) {
  return map_lanes([&](int i) { return a.lane[i] / b.lane[i]; });
}
/// a * b + c with one rounding.
CARAVAN_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return map_lanes([&](int i) { return __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]); });
}
/// The greater lane; b where they are equal or one is NaN.
CARAVAN_INLINE Vec max(Vec a, Vec b) {
  return map_lanes([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
/// a < b ? x : y.
CARAVAN_INLINE Vec select_less(Vec a, Vec b, Vec x, Vec y) {
  return map_lanes([&](int i) { return a.lane[i] < b.lane[i] ? x.lane[i] : y.lane[i]; });
}
/// y, but a where a is NaN.
CARAVAN_INLINE Vec keep_nan(Vec a, Vec y) {
  return map_lanes([&](int i) { return a.lane[i] == a.lane[i] ? y.lane[i] : a.lane[i]; });
}
/// The first `count` lanes of a, `fill` in the others.
CARAVAN_INLINE Vec keep_first(Vec a, std::int64_t count, float fill) {
  return map_lanes([&](int i) { return i < count ? a.lane[i] : fill; });
}
/// value * 2^power for whole powers in [-252, 254]; exact unless the result is subnormal.
CARAVAN_INLINE Vec scale_by_power(Vec value, Vec power) {
  return map_lanes([&](int i) {
    const auto whole = static_cast<std::int32_t>(power.lane[i]);
    const std::int32_t half = whole >> 1;
    const float first = bits_float(static_cast<std::uint32_t>(half + 127) << 23);
    const float second = bits_float(static_cast<std::uint32_t>(whole - half + 127) << 23);
    return value.lane[i] * first * second;
  });
}
/// Bit i: a and b are equal in lane i (never for NaN).
CARAVAN_INLINE std::uint32_t equal_mask(Vec a, Vec b) {
  std::uint32_t mask = 0;
  for (int i = 0; i < 16; ++i) mask |= (a.lane[i] == b.lane[i] ? 1U : 0U) << i;
  return mask;
}
/// Sum of the lanes in the fixed order of all builds: i + (i + 8), then 4, 2, 1.
CARAVAN_INLINE float fold_sum(Vec a) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) a.lane[i] = a.lane[i] + a.lane[i + width];
  }
  return a.lane[0];
}
CARAVAN_INLINE float fold_max(Vec a) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) {
      a.lane[i] = a.lane[i] > a.lane[i + width] ? a.lane[i] : a.lane[i + width];
    }
  }
  return a.lane[0];
}
CARAVAN_INLINE void prefetch(const void*) {}
CARAVAN_INLINE void prefetch_far(const void*) {}
