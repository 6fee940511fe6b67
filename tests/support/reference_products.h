#pragma once
// Plain references of the products with packed weights, element by element: the chains and trees
// that caravan/ops/linear.h promises, for both kinds of computing; and what their tests share.

#include <cstdint>
#include <vector>

#include "support/reference_ops.h"

namespace caravan::testing {

/// Float32 computing: fma in increasing k over `columns`, from zero.
float chain(const float* x, const float* weights, Range columns);

/// a * b + c, and a + b, as the tile instructions round: one rounding to nearest even, subnormal
/// operands zero, results zero that are subnormal before their exponent is bounded. a * b must be
/// exact in double.
float flushing_fma(float a, float b, float c);
float flushing_add(float a, float b);

/// bf16 computing: runs of 32 columns, each an even and an odd chain.
float bf16_chain(const float* x, const float* weights, Range columns);

/// The tree of SliceTree over slices [node.begin, node.end) of one output element, top down.
float tree_sum(ops::Compute compute, const float* x, const float* weights,
               const std::vector<Range>& slices, Range node);

/// ops::linear into a buffer that shows elements which are not written, or written beside it.
at::Tensor run_linear(const ops::Context& context, const at::Tensor& x, const TestWeight& weight,
                      const at::Tensor& bias = {});
/// What it promises, without a bias.
at::Tensor chains(const at::Tensor& x, const TestWeight& weight);

/// Slices of these widths over consecutive columns.
std::vector<Range> slices_of(const std::vector<std::int64_t>& widths);
/// What ranks that own the slices `owned` compute together by ops::linear_sliced.
at::Tensor sum_over_ranks(const ops::Context& context, const at::Tensor& x,
                          const TestWeight& weight, const std::vector<Range>& slices,
                          const std::vector<Range>& owned);
/// What it promises.
at::Tensor trees(const at::Tensor& x, const TestWeight& weight, const std::vector<Range>& slices);

}  // namespace caravan::testing
