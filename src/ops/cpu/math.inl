// exp, sin and cos with the same bits in every build (own polynomials, explicit fused
// multiply-adds).

/// exp(x) within 2 ulp; 0 below -87.3365 (where the result would be subnormal), infinity above
/// 88.7228, NaN for NaN. x = power * ln 2 + r, exp(r) = 1 + r + r^2 q(r), minimax q of degree 4
/// (relative error 3.1e-9).
CARAVAN_INLINE Vec exp_of(Vec x) {
  constexpr float kLowest = -0x1.5d589ep+6F;
  constexpr float kHighest = 0x1.62e42ep+6F;
  constexpr float kRound = 0x1.8p+23F;  // adding it rounds to a whole number
  const Vec lowest = broadcast(kLowest);
  const Vec highest = broadcast(kHighest);
  const Vec clamped = select_less(highest, x, highest, max(x, lowest));
  const Vec power =
      sub(fma(clamped, broadcast(0x1.715476p+0F), broadcast(kRound)), broadcast(kRound));
  Vec r = fma(power, broadcast(-0x1.62e43p-1F), clamped);
  r = fma(power, broadcast(0x1.05c61p-29F), r);
  Vec q = broadcast(0x1.6a2352p-10F);
  q = fma(q, r, broadcast(0x1.123a6cp-7F));
  q = fma(q, r, broadcast(0x1.5558f4p-5F));
  q = fma(q, r, broadcast(0x1.555490p-3F));
  q = fma(q, r, broadcast(0x1.fffffcp-2F));
  const Vec y = add(fma(mul(r, r), q, r), broadcast(1.0F));
  Vec result = scale_by_power(y, power);
  result = select_less(x, lowest, zero(), result);
  result = select_less(highest, x, broadcast(__builtin_inff()), result);
  return keep_nan(x, result);
}

/// Sine and cosine of |angle| < 2^26 in double: Cody-Waite reduction by pi/2 in two parts, Taylor
/// polynomials on [-pi/4, pi/4] (error below 1e-16), one rounding to float32.
CARAVAN_INLINE void sin_cos_of(double angle, float& sine, float& cosine) {
  constexpr double kRound = 0x1.8p+52;
  const double shifted = __builtin_fma(angle, 0x1.45f306dc9c883p-1, kRound);
  const double quarters = shifted - kRound;
  const auto quadrant = static_cast<std::int64_t>(quarters) & 3;
  double r = __builtin_fma(quarters, -0x1.921fb54442d18p+0, angle);
  r = __builtin_fma(quarters, -0x1.1a62633145c07p-54, r);
  const double s = r * r;
  double odd = -1.0 / 1307674368000.0;  // 1/15!, 1/13!, ...
  odd = __builtin_fma(odd, s, 1.0 / 6227020800.0);
  odd = __builtin_fma(odd, s, -1.0 / 39916800.0);
  odd = __builtin_fma(odd, s, 1.0 / 362880.0);
  odd = __builtin_fma(odd, s, -1.0 / 5040.0);
  odd = __builtin_fma(odd, s, 1.0 / 120.0);
  odd = __builtin_fma(odd, s, -1.0 / 6.0);
  const double sine_r = __builtin_fma(odd * s, r, r);
  double even = 1.0 / 20922789888000.0;  // 1/16!, 1/14!, ...
  even = __builtin_fma(even, s, -1.0 / 87178291200.0);
  even = __builtin_fma(even, s, 1.0 / 479001600.0);
  even = __builtin_fma(even, s, -1.0 / 3628800.0);
  even = __builtin_fma(even, s, 1.0 / 40320.0);
  even = __builtin_fma(even, s, -1.0 / 720.0);
  even = __builtin_fma(even, s, 1.0 / 24.0);
  even = __builtin_fma(even, s, -0.5);
  const double cosine_r = __builtin_fma(even, s, 1.0);
  const double first = (quadrant & 1) != 0 ? cosine_r : sine_r;
  const double second = (quadrant & 1) != 0 ? sine_r : cosine_r;
  sine = static_cast<float>((quadrant & 2) != 0 ? -first : first);
  cosine = static_cast<float>(quadrant == 1 || quadrant == 2 ? -second : second);
}

void sin_cos(const float* angles, std::int64_t count, float* sines, float* cosines) {
  for (std::int64_t i = 0; i < count; ++i) {
    sin_cos_of(static_cast<double>(angles[i]), sines[i], cosines[i]);
  }
}

/// Calls function(first, lanes) for each run of up to 16 elements.
template <class Function>
CARAVAN_INLINE void for_each_vec(std::int64_t count, const Function& function) {
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) function(i, std::int64_t{16});
  if (i < count) function(i, count - i);
}

CARAVAN_INLINE Vec load_lanes(const float* source, std::int64_t lanes) {
  return lanes == 16 ? load(source) : load_partial(source, lanes);
}
CARAVAN_INLINE void store_lanes(float* target, Vec value, std::int64_t lanes) {
  if (lanes == 16) {
    store(target, value);
  } else {
    store_partial(target, value, lanes);
  }
}

void exp_shifted(const float* x, std::int64_t count, float shift, float* y) {
  for_each_vec(count, [&](std::int64_t i, std::int64_t lanes) {
    store_lanes(y + i, exp_of(sub(load_lanes(x + i, lanes), broadcast(shift))), lanes);
  });
}

float row_max(const float* x, std::int64_t count) {
  Vec greatest = broadcast(-__builtin_inff());
  for_each_vec(count, [&](std::int64_t i, std::int64_t lanes) {
    greatest = max(keep_first(load_lanes(x + i, lanes), lanes, -__builtin_inff()), greatest);
  });
  return fold_max(greatest);
}

/// Sum of exp(x - shift): lane i sums the elements i, i + 16, ... in order; the lanes are added in
/// double, in order.
double exp_sum(const float* x, std::int64_t count, float shift) {
  Vec sums = zero();
  for_each_vec(count, [&](std::int64_t i, std::int64_t lanes) {
    const Vec value = keep_first(load_lanes(x + i, lanes), lanes, -__builtin_inff());
    sums = add(sums, exp_of(sub(value, broadcast(shift))));
  });
  float lane_sums[16];
  store(lane_sums, sums);
  double total = 0;
  for (const float sum : lane_sums) total += static_cast<double>(sum);
  return total;
}
