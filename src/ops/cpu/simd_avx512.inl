// 16 lanes of float32 as one AVX-512 register. Results equal simd_generic.inl bit for bit.

constexpr int kTileRows = 12;
constexpr int kTileVecs = 2;
/// Vectors of outputs in flight for a product of few rows: as many chains as 32 registers hold.
constexpr int vecs_for_rows(int rows) { return rows <= 3 ? 8 : rows <= 6 ? 4 : 2; }

/// Tile of the bf16 products: two chains for each output.
constexpr int kChainRows = 6;
constexpr int kChainVecs = 2;

/// Chains in flight that keep the FMA units busy.
constexpr int kPeakChains = 16;

struct Vec {
  __m512 all;
};

CARAVAN_INLINE Vec broadcast(float value) { return {_mm512_set1_ps(value)}; }
CARAVAN_INLINE Vec zero() { return {_mm512_setzero_ps()}; }
CARAVAN_INLINE Vec load(const float* source) { return {_mm512_loadu_ps(source)}; }
CARAVAN_INLINE Vec load(const BFloat16* source) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
/// Even and odd elements of 32 consecutive ones.
CARAVAN_INLINE Vec load_even(const BFloat16* source) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(source), 16))};
}
CARAVAN_INLINE Vec load_odd(const BFloat16* source) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000U));
  return {_mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(source), upper))};
}
CARAVAN_INLINE Vec load(const Float16* source) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source)))};
}
CARAVAN_INLINE Vec load(const std::int8_t* source) {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes))};
}
/// The lower and the upper halves of 16 bytes.
CARAVAN_INLINE void load_halves(const std::uint8_t* source, Vec& lower, Vec& upper) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
  const __m512i pairs = _mm512_cvtepu8_epi32(bytes);
  lower = {_mm512_cvtepi32_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(15)))};
  upper = {_mm512_cvtepi32_ps(_mm512_srli_epi32(pairs, 4))};
}
CARAVAN_INLINE __mmask16 first_lanes(std::int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffffU : (1U << count) - 1U);
}
CARAVAN_INLINE Vec load_partial(const float* source, std::int64_t count) {
  return {_mm512_maskz_loadu_ps(first_lanes(count), source)};
}
CARAVAN_INLINE void store(float* target, Vec value) { _mm512_storeu_ps(target, value.all); }
CARAVAN_INLINE void store_partial(float* target, Vec value, std::int64_t count) {
  _mm512_mask_storeu_ps(target, first_lanes(count), value.all);
}

CARAVAN_INLINE Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.all, b.all)}; }
CARAVAN_INLINE Vec sub(Vec a, Vec b) { return {_mm512_sub_ps(a.all, b.all)}; }
CARAVAN_INLINE Vec mul(Vec a, Vec b) { return {_mm512_mul_ps(a.all, b.all)}; }
CARAVAN_INLINE Vec div(Vec a, Vec b) { return {_mm512_div_ps(a.all, b.all)}; }
CARAVAN_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.all, b.all, c.all)}; }
CARAVAN_INLINE Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.all, b.all)}; }
CARAVAN_INLINE Vec select_less(Vec a, Vec b, Vec x, Vec y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.all, b.all, _CMP_LT_OQ), y.all, x.all)};
}
CARAVAN_INLINE Vec keep_nan(Vec a, Vec y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.all, a.all, _CMP_UNORD_Q), y.all, a.all)};
}
CARAVAN_INLINE Vec keep_first(Vec a, std::int64_t count, float fill) {
  return {_mm512_mask_blend_ps(first_lanes(count), _mm512_set1_ps(fill), a.all)};
}
CARAVAN_INLINE Vec scale_by_power(Vec value, Vec power) {
  return {_mm512_scalef_ps(value.all, power.all)};
}
CARAVAN_INLINE std::uint32_t equal_mask(Vec a, Vec b) {
  return _mm512_cmp_ps_mask(a.all, b.all, _CMP_EQ_OQ);
}
CARAVAN_INLINE __m256 upper_half(__m512 value) { return _mm512_extractf32x8_ps(value, 1); }
CARAVAN_INLINE float fold_sum(Vec a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.all), upper_half(a.all));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
CARAVAN_INLINE float fold_max(Vec a) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a.all), upper_half(a.all));
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
