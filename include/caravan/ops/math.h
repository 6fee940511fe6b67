#pragma once
// Vector functions over one row for the sampler, from the same kernels: the same bits for every
// instruction set.

#include <span>

#include "caravan/ops/context.h"

namespace caravan::ops {

/// log(sum(exp(x))) over the row, maximum subtracted, 16 lanes, fixed fold; -inf entries count as
/// zero. The final sum and logarithm are taken in double. Empty or all -inf: -inf.
double log_sum_exp(const Context& context, std::span<const float> row);

/// y[i] = exp(x[i] - shift). Accurate to 2 ulp, exp(-inf) = 0. In place allowed.
void exp_shifted(const Context& context, std::span<const float> x, float shift, std::span<float> y);

}  // namespace caravan::ops
