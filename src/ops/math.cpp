#include "caravan/ops/math.h"

#include <cmath>
#include <limits>

#include "caravan/core/error.h"
#include "caravan/core/standard_floats.h"
#include "cpu/kernel_table.h"

namespace caravan::ops {
namespace {

/// Natural logarithm of a positive, finite, normal double within 2 ulp, without libm: its bits
/// differ between versions and CPUs. x = 2^e m with m in [sqrt(1/2), sqrt(2));
/// log m = 2 atanh((m - 1) / (m + 1)).
double natural_log(double x) {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);  // in [0.5, 1), exact
  if (mantissa < 0x1.6a09e667f3bcdp-1) {
    mantissa *= 2;
    exponent -= 1;
  }
  const double z = (mantissa - 1) / (mantissa + 1);
  const double square = z * z;
  double series = 0;
  for (int odd = 23; odd >= 3; odd -= 2) series = (series + 1.0 / odd) * square;
  const double log_mantissa = 2 * z + 2 * z * series;
  return exponent * 0x1.62e42fefa39efp-1 + (log_mantissa + exponent * 0x1.abc9e3b39803fp-56);
}

}  // namespace

double log_sum_exp(const Context& context, std::span<const float> row) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const StandardFloats floats;
  const auto count = static_cast<std::int64_t>(row.size());
  const float greatest = context.kernels().row_max(row.data(), count);
  if (greatest == -std::numeric_limits<float>::infinity()) {
    // The maximum ignores NaN; the sum finds it.
    for (const float value : row) {
      if (std::isnan(value)) return std::numeric_limits<double>::quiet_NaN();
    }
    return -kInfinity;
  }
  const double sum = context.kernels().exp_sum(row.data(), count, greatest);
  if (std::isnan(sum)) return sum;
  return static_cast<double>(greatest) + natural_log(sum);
}

void exp_shifted(const Context& context, std::span<const float> x, float shift,
                 std::span<float> y) {
  CARAVAN_ASSERT(x.size() == y.size(), "exp_shifted: {} values into {}", x.size(), y.size());
  const StandardFloats floats;
  context.kernels().exp_shifted(x.data(), static_cast<std::int64_t>(x.size()), shift, y.data());
}

}  // namespace caravan::ops
