#pragma once
// Tensors where a context computes, and the ways of their values to and from the host. In this
// version that is host memory, and the ways cost nothing.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "caravan/ops/context.h"

namespace caravan::ops {

/// float32, contiguous, values not set.
at::Tensor make_buffer(const Context& context, at::IntArrayRef sizes);

/// All values become +0. `x` is contiguous.
void set_zero(const Context& context, at::Tensor& x);

/// Row `from` of `source` [N, D] becomes row `to` of `target` [M, D]; rows are contiguous.
void copy_row(const Context& context, const at::Tensor& source, std::int64_t from,
              at::Tensor& target, std::int64_t to);

/// `x` where the host can read it, complete; valid until `x` is written again.
at::Tensor to_host(const Context& context, const at::Tensor& x);

}  // namespace caravan::ops
