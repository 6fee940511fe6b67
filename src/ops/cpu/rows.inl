// Operations on one row: sums over 16 lanes (element i belongs to lane i mod 16), lanes folded in a
// fixed order.

void rms_norm(const float* x, const float* weight, float epsilon, std::int64_t width, float* y) {
  Vec squares = zero();
  for_each_vec(width, [&](std::int64_t i, std::int64_t lanes) {
    const Vec value = load_lanes(x + i, lanes);
    squares = fma(value, value, squares);
  });
  const float mean = fold_sum(squares) / static_cast<float>(width);
  // Exact square root and division: the approximate instructions differ between CPUs.
  const Vec factor = broadcast(1.0F / __builtin_sqrtf(mean + epsilon));
  for_each_vec(width, [&](std::int64_t i, std::int64_t lanes) {
    const Vec normalised = mul(load_lanes(x + i, lanes), factor);
    store_lanes(y + i, mul(normalised, load_lanes(weight + i, lanes)), lanes);
  });
}

/// y = gate / (1 + exp(-gate)) * up.
void swiglu(const float* gate, const float* up, std::int64_t width, float* y) {
  for_each_vec(width, [&](std::int64_t i, std::int64_t lanes) {
    const Vec g = load_lanes(gate + i, lanes);
    const Vec silu = div(g, add(broadcast(1.0F), exp_of(sub(zero(), g))));
    store_lanes(y + i, mul(silu, load_lanes(up + i, lanes)), lanes);
  });
}

/// Index of the first element that equals `value`, or is NaN where `value` is.
CARAVAN_INLINE std::int64_t find_first(const float* x, std::int64_t width, float value) {
  for (std::int64_t i = 0; i < width; i += 16) {
    const std::int64_t lanes = lesser(16, width - i);
    const Vec element = load_lanes(x + i, lanes);
    const std::uint32_t real = (1U << lanes) - 1U;
    const std::uint32_t hits =
        value == value ? equal_mask(element, broadcast(value)) : ~equal_mask(element, element);
    if ((hits & real) != 0) return i + __builtin_ctz(hits & real);
  }
  return -1;
}

void argmax(const float* x, std::int64_t width, float* value, std::int32_t* index) {
  Vec greatest = broadcast(-__builtin_inff());
  Vec invalid = zero();  // NaN in the lanes where a NaN went by
  for_each_vec(width, [&](std::int64_t i, std::int64_t lanes) {
    const Vec element = load_lanes(x + i, lanes);
    invalid = keep_nan(element, invalid);
    greatest = max(keep_first(element, lanes, -__builtin_inff()), greatest);
  });
  const bool has_nan = equal_mask(invalid, invalid) != 0xffffU;
  const float wanted = has_nan ? __builtin_nanf("") : fold_max(greatest);
  const std::int64_t found = find_first(x, width, wanted);
  *index = static_cast<std::int32_t>(found);
  *value = found >= 0 ? x[found] : 0.0F;
}
