// Loops that do nothing but read or multiply (caravan/ops/peaks.h).

constexpr int kPeakRounds = 4096;

float fma_chains(float factor) {
  Vec chains[kPeakChains];
  for (int i = 0; i < kPeakChains; ++i) chains[i] = broadcast(static_cast<float>(i));
  const Vec scale = broadcast(factor);
  for (int round = 0; round < kPeakRounds; ++round) {
    CARAVAN_UNROLL for (int i = 0; i < kPeakChains; ++i) chains[i] = fma(chains[i], scale, scale);
  }
  float out[16];
  Vec sum = zero();
  for (int i = 0; i < kPeakChains; ++i) sum = add(sum, chains[i]);
  store(out, sum);
  return out[0];
}

float read_stream(const float* values, std::int64_t count) {
  constexpr int kVecs = 8;
  constexpr std::int64_t kAhead = 1024;  // floats: 4 KiB
  Vec sums[kVecs];
  for (int i = 0; i < kVecs; ++i) sums[i] = zero();
  for (std::int64_t at = 0; at + kVecs * 16 <= count; at += kVecs * 16) {
    CARAVAN_UNROLL for (int i = 0; i < kVecs; ++i) {
      prefetch(values + at + i * 16 + kAhead);
      sums[i] = add(sums[i], load(values + at + i * 16));
    }
  }
  float out[16];
  for (int i = 1; i < kVecs; ++i) sums[0] = add(sums[0], sums[i]);
  store(out, sums[0]);
  return out[0];
}

constexpr PeakKernels kPeakKernels = {2.0 * 16 * kPeakChains * kPeakRounds, fma_chains,
                                      read_stream};
