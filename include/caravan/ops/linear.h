#pragma once
// Products with packed weights. Numerics (README, "Same request, same bytes"): every output element
// is one FMA chain in increasing k, from zero, in float32; a sliced product has one such chain per
// slice and adds slices in tree order. So no result depends on the number of rows, threads, ranks
// or the instruction set.
//
// A weight of bf16 computing (PackedWeight::compute) has other chains, those of the tile
// instruction TDPBF16PS, with the same independence. Inputs are rounded to bf16, nearest even. Each
// slice is cut into runs of 32 columns, the last one filled up with zeros. A run has two FMA chains
// from zero in increasing k, one over even and one over odd columns; the slice's sum is, run after
// run from zero, sum + (even + odd). In these steps subnormal operands count as zero and subnormal
// results become zero; slices are added, and the bias, as ever.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "caravan/core/partition.h"
#include "caravan/ops/context.h"
#include "caravan/ops/packed_weight.h"

namespace caravan::ops {

/// y = x W^T (+ bias).
///
/// @param x     [N, in] float32, rows contiguous (row stride may exceed `in`).
/// @param bias  [out] float32 or undefined; added after the chain.
/// @param y     [N, out] float32, rows contiguous (row stride may exceed `out`).
void linear(const Context& context, const at::Tensor& x, const PackedWeight& weight,
            const at::Tensor& bias, at::Tensor& y);

/// The cut of this rank's input features into slices of the global sum, and the tree nodes to
/// produce.
struct SliceLayout {
  std::vector<Range> slices;     // local input columns of each owned slice: in order, without gaps,
                                 // together all input features; a slice may be empty
  std::int64_t first_slice = 0;  // global index of slices[0]
  std::vector<SliceTree::Node>
      nodes;  // whole nodes to produce: global slice indices, together exactly the owned ones
};

/// Row-parallel product before the sum over ranks: partials[j] = tree sum over the slices of
/// nodes[j] of x_s W_s^T.
///
/// @param x         [N, in] float32, rows contiguous.
/// @param partials  [nodes, N, out] float32, contiguous.
void linear_sliced(const Context& context, const at::Tensor& x, const PackedWeight& weight,
                   const SliceLayout& layout, at::Tensor& partials);

}  // namespace caravan::ops
