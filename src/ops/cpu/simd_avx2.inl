// 16 lanes of float32 as two AVX2 registers. Results equal simd_generic.inl bit for bit.

constexpr int kTileRows = 6;
constexpr int kTileVecs = 1;
/// Vectors of outputs in flight for a product of few rows: as many chains as 16 registers hold.
constexpr int vecs_for_rows(int rows) { return rows == 1 ? 4 : rows <= 2 ? 2 : 1; }

/// Tile of the bf16 products: two chains for each output.
constexpr int kChainRows = 2;
constexpr int kChainVecs = 1;

/// Chains in flight that keep the FMA units busy.
constexpr int kPeakChains = 5;

struct Vec {
  __m256 low;
  __m256 high;
};

CARAVAN_INLINE Vec broadcast(float value) {
  const __m256 all = _mm256_set1_ps(value);
  return {all, all};
}
CARAVAN_INLINE Vec zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
CARAVAN_INLINE Vec load(const float* source) {
  return {_mm256_loadu_ps(source), _mm256_loadu_ps(source + 8)};
}
CARAVAN_INLINE __m256 expand_bf16(const BFloat16* source) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
CARAVAN_INLINE Vec load(const BFloat16* source) {
  return {expand_bf16(source), expand_bf16(source + 8)};
}
CARAVAN_INLINE __m256 expand_fp16(const Float16* source) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source)));
}
/// Even and odd elements of 32 consecutive ones.
CARAVAN_INLINE __m256 even_eight(const BFloat16* source) {
  const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
  return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}
CARAVAN_INLINE __m256 odd_eight(const BFloat16* source) {
  const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000U));
  return _mm256_castsi256_ps(_mm256_and_si256(pairs, upper));
}
CARAVAN_INLINE Vec load_even(const BFloat16* source) {
  return {even_eight(source), even_eight(source + 16)};
}
CARAVAN_INLINE Vec load_odd(const BFloat16* source) {
  return {odd_eight(source), odd_eight(source + 16)};
}
CARAVAN_INLINE Vec load(const Float16* source) {
  return {expand_fp16(source), expand_fp16(source + 8)};
}
CARAVAN_INLINE __m256 expand_int8(const std::int8_t* source) {
  const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(source));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
}
CARAVAN_INLINE Vec load(const std::int8_t* source) {
  return {expand_int8(source), expand_int8(source + 8)};
}
CARAVAN_INLINE void expand_pairs(const std::uint8_t* source, __m256& lower, __m256& upper) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(source));
  const __m256i pairs = _mm256_cvtepu8_epi32(bytes);
  lower = _mm256_cvtepi32_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(15)));
  upper = _mm256_cvtepi32_ps(_mm256_srli_epi32(pairs, 4));
}
/// The lower and the upper halves of 16 bytes.
CARAVAN_INLINE void load_halves(const std::uint8_t* source, Vec& lower, Vec& upper) {
  expand_pairs(source, lower.low, upper.low);
  expand_pairs(source + 8, lower.high, upper.high);
}

/// All bits of the lanes below `count`, of the eight lanes from `first` on.
CARAVAN_INLINE __m256i first_lanes(std::int64_t count, int first) {
  const __m256i index =
      _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first));
  const auto limit = static_cast<int>(count < 16 ? count : 16);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(limit), index);
}
CARAVAN_INLINE Vec load_partial(const float* source, std::int64_t count) {
  return {_mm256_maskload_ps(source, first_lanes(count, 0)),
          _mm256_maskload_ps(source + 8, first_lanes(count, 8))};
}
CARAVAN_INLINE void store(float* target, Vec value) {
  _mm256_storeu_ps(target, value.low);
  _mm256_storeu_ps(target + 8, value.high);
}
CARAVAN_INLINE void store_partial(float* target, Vec value, std::int64_t count) {
  _mm256_maskstore_ps(target, first_lanes(count, 0), value.low);
  _mm256_maskstore_ps(target + 8, first_lanes(count, 8), value.high);
}

CARAVAN_INLINE Vec add(Vec a, Vec b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
CARAVAN_INLINE Vec sub(Vec a, Vec b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
CARAVAN_INLINE Vec mul(Vec a, Vec b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
CARAVAN_INLINE Vec div(Vec a, Vec b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
CARAVAN_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
CARAVAN_INLINE Vec max(Vec a, Vec b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
CARAVAN_INLINE Vec select_less(Vec a, Vec b, Vec x, Vec y) {
  return {_mm256_blendv_ps(y.low, x.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.high, x.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}
CARAVAN_INLINE Vec keep_nan(Vec a, Vec y) {
  return {_mm256_blendv_ps(y.low, a.low, _mm256_cmp_ps(a.low, a.low, _CMP_UNORD_Q)),
          _mm256_blendv_ps(y.high, a.high, _mm256_cmp_ps(a.high, a.high, _CMP_UNORD_Q))};
}
CARAVAN_INLINE Vec keep_first(Vec a, std::int64_t count, float fill) {
  const __m256 other = _mm256_set1_ps(fill);
  return {_mm256_blendv_ps(other, a.low, _mm256_castsi256_ps(first_lanes(count, 0))),
          _mm256_blendv_ps(other, a.high, _mm256_castsi256_ps(first_lanes(count, 8)))};
}
CARAVAN_INLINE __m256 scale_half(__m256 value, __m256 power) {
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256i whole = _mm256_cvttps_epi32(power);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  const __m256i rest = _mm256_sub_epi32(whole, half);
  const __m256i first = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i second = _mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23);
  return _mm256_mul_ps(_mm256_mul_ps(value, _mm256_castsi256_ps(first)),
                       _mm256_castsi256_ps(second));
}
CARAVAN_INLINE Vec scale_by_power(Vec value, Vec power) {
  return {scale_half(value.low, power.low), scale_half(value.high, power.high)};
}
CARAVAN_INLINE std::uint32_t equal_mask(Vec a, Vec b) {
  const int low = _mm256_movemask_ps(_mm256_cmp_ps(a.low, b.low, _CMP_EQ_OQ));
  const int high = _mm256_movemask_ps(_mm256_cmp_ps(a.high, b.high, _CMP_EQ_OQ));
  return static_cast<std::uint32_t>(low) | (static_cast<std::uint32_t>(high) << 8);
}
CARAVAN_INLINE float fold_sum(Vec a) {
  const __m256 eight = _mm256_add_ps(a.low, a.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
CARAVAN_INLINE float fold_max(Vec a) {
  const __m256 eight = _mm256_max_ps(a.low, a.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
CARAVAN_INLINE void prefetch(const void* address) {
  _mm_prefetch(static_cast<const char*>(address), _MM_HINT_T0);
}
CARAVAN_INLINE void prefetch_far(const void* address) {
  _mm_prefetch(static_cast<const char*>(address), _MM_HINT_T1);
}
