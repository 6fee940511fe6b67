#pragma once
// Row-wise operations of a decoder layer. All float32, all with a fixed order of sums (16 lanes,
// then a fixed fold).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "caravan/core/partition.h"
#include "caravan/ops/context.h"
#include "caravan/ops/packed_weight.h"

namespace caravan::ops {

/// y = x * rsqrt(mean(x^2) + eps) * weight, rounded after the first product. x, y [N, D]; weight
/// [D].
void rms_norm(const Context& context, const at::Tensor& x, const at::Tensor& weight, float epsilon,
              at::Tensor& y);

/// y = silu(gate) * up. gate_up [N, 2F] with gate in the first F columns; y [N, F].
void swiglu(const Context& context, const at::Tensor& gate_up, at::Tensor& y);

/// x[n] += bias for every row, one rounding. x [N, D] with contiguous rows; bias [D]. For the bias
/// of a row-parallel product: once, after the sum over ranks and the residual.
void add_bias(const Context& context, const at::Tensor& bias, at::Tensor& x);

/// Rows of the vocabulary shard: x[n] = table[token - shard.begin] where the shard holds the token,
/// else zero. A zero is always +0, so that the sum over ranks is exact. x [N, D].
void embedding(const Context& context, std::span<const std::int32_t> tokens,
               const PackedWeight& table, Range shard, at::Tensor& x);

/// Copies rows of x [N, D] to y [rows.size(), D].
void gather_rows(const Context& context, const at::Tensor& x, std::span<const std::int32_t> rows,
                 at::Tensor& y);

/// The largest value of each row and the lowest column that has it. NaN wins over everything, so
/// that it is noticed.
struct ArgMax {
  float value = 0;
  std::int32_t index = -1;  // -1 for an empty row
};
/// @param logits  [N, W] float32, contiguous; W may be 0.
/// @param result  one entry per row.
void argmax(const Context& context, const at::Tensor& logits, std::span<ArgMax> result);

}  // namespace caravan::ops
