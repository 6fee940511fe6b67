// Operations on one row that models with vision need; sums over 16 lanes as in rows.inl.

void layer_norm(const float* x, const float* weight, const float* bias, float epsilon,
                std::int64_t width, float* y) {
  Vec sums = zero();
  for_each_vec(width, [&](std::int64_t i, std::int64_t lanes) {
    sums = add(sums, load_lanes(x + i, lanes));
  });
  const Vec mean = broadcast(fold_sum(sums) / static_cast<float>(width));
  Vec squares = zero();
  for_each_vec(width, [&](std::int64_t i, std::int64_t lanes) {
    const Vec centred = keep_first(sub(load_lanes(x + i, lanes), mean), lanes, 0.0F);
    squares = fma(centred, centred, squares);
  });
  const float variance = fold_sum(squares) / static_cast<float>(width);
  const Vec factor = broadcast(1.0F / __builtin_sqrtf(variance + epsilon));
  for_each_vec(width, [&](std::int64_t i, std::int64_t lanes) {
    const Vec normalised = mul(sub(load_lanes(x + i, lanes), mean), factor);
    store_lanes(y + i, fma(normalised, load_lanes(weight + i, lanes), load_lanes(bias + i, lanes)),
                lanes);
  });
}

/// The part of the standard normal distribution above u, times u: u (1 - Phi(u)), for u >= 0.
///
/// 1 - Phi(u) = erfc(u / sqrt 2) / 2 = exp(-u^2 / 2) r(u); with t = 1 / (1 + 0.296875 u) r is
/// t p(t), p of degree 9 with the least largest relative error (2.2e-9) for u <= 14. The rounding
/// of u^2 is made good, so that the relative error does not grow with u. From 12.75 on the result
/// is below 2e-36 and taken as zero.
CARAVAN_INLINE Vec tail_of(Vec u) {
  constexpr float kLargest = 12.75F;
  const Vec one = broadcast(1.0F);
  const Vec bounded = select_less(u, broadcast(kLargest), u, broadcast(kLargest));
  const Vec t = div(one, fma(bounded, broadcast(0.296875F), one));
  Vec p = broadcast(-0x1.50f5c8p-6F);
  p = fma(p, t, broadcast(0x1.d8eb44p-4F));
  p = fma(p, t, broadcast(-0x1.f37912p-3F));
  p = fma(p, t, broadcast(0x1.c1b962p-3F));
  p = fma(p, t, broadcast(-0x1.973738p-4F));
  p = fma(p, t, broadcast(0x1.b7770cp-4F));
  p = fma(p, t, broadcast(0x1.32b8bap-4F));
  p = fma(p, t, broadcast(0x1.c25068p-4F));
  p = fma(p, t, broadcast(0x1.e46424p-4F));
  p = fma(p, t, broadcast(0x1.e52474p-4F));
  const Vec square = mul(bounded, bounded);
  const Vec rounded_off = fma(bounded, bounded, sub(zero(), square));
  const Vec power = exp_of(mul(square, broadcast(-0.5F)));
  const Vec corrected = fma(mul(rounded_off, broadcast(-0.5F)), power, power);
  const Vec result = mul(mul(corrected, mul(t, p)), bounded);
  return select_less(bounded, broadcast(kLargest), result, zero());
}

/// x Phi(x) = max(x, 0) - |x| (1 - Phi(|x|)): nothing cancels for negative x.
void gelu(const float* x, std::int64_t width, float* y) {
  for_each_vec(width, [&](std::int64_t i, std::int64_t lanes) {
    const Vec value = load_lanes(x + i, lanes);
    const Vec magnitude = max(value, sub(zero(), value));
    const Vec result = sub(max(value, zero()), tail_of(magnitude));
    store_lanes(y + i, keep_nan(value, result), lanes);
  });
}

void add_scaled(const float* y, const float* bias, float scale, std::int64_t width, float* x) {
  const Vec factor = broadcast(scale);
  for_each_vec(width, [&](std::int64_t i, std::int64_t lanes) {
    Vec term = load_lanes(y + i, lanes);
    if (bias != nullptr) term = add(term, load_lanes(bias + i, lanes));
    store_lanes(x + i, fma(factor, term, load_lanes(x + i, lanes)), lanes);
  });
}
