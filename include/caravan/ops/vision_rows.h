#pragma once
// Row-wise operations that only models with vision need. All float32, with a fixed order of sums
// (16 lanes, then a fixed fold), so the same bits for any threads and instruction set.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "caravan/ops/context.h"

namespace caravan::ops {

/// y = (x - mean) / sqrt(variance + eps) * weight + bias over each row; the centred and scaled
/// value is rounded, then weight and bias are applied with one rounding. x, y [N, D] (y may be x);
/// weight and bias [D].
void layer_norm(const Context& context, const at::Tensor& x, const at::Tensor& weight,
                const at::Tensor& bias, float epsilon, at::Tensor& y);

/// y = rms_norm (elementwise.h) over each run of weight.numel() columns by itself, in place.
/// x [N, heads * d], rows contiguous; weight [d].
void rms_norm_heads(const Context& context, at::Tensor& x, const at::Tensor& weight, float epsilon);

/// y = x Phi(x), the exact (erf) form, in place. Within 6 units in the last place of the result;
/// zero for x <= -12.75. x [N, D].
void gelu(const Context& context, at::Tensor& x);

/// x = x + scale * (y + bias), the sum y + bias rounded, the rest with one rounding. x, y [N, D];
/// bias [D] or undefined (no sum).
void add_scaled(const Context& context, const at::Tensor& y, const at::Tensor& bias, float scale,
                at::Tensor& x);

/// x[rows[i]] = y[i]: the way back from gather_rows (elementwise.h). `rows` holds no row twice.
void scatter_rows(const Context& context, const at::Tensor& y, std::span<const std::int32_t> rows,
                  at::Tensor& x);

}  // namespace caravan::ops
