#pragma once
// The sums over ranks behind row-parallel products: how each kind cuts its input features into
// slices, and which of them a rank owns. Private to src/model.

#include <ATen/core/Tensor.h>

#include "caravan/model/config.h"
#include "caravan/model/shard_plan.h"
#include "caravan/ops/context.h"
#include "caravan/ops/linear.h"
#include "caravan/parallel/communicator.h"

namespace caravan::model {

/// The features of a product are cut into slices that the model alone determines; each is summed by
/// itself, and the sums of slices by one tree (parallel/communicator.h).
struct RowSum {
  parallel::SlicedSum sum;  // the plan, the same on every rank
  ops::SliceLayout layout;  // this rank's slices, and the tree nodes to make of them
  std::int64_t num_nodes() const { return static_cast<std::int64_t>(layout.nodes.size()); }
};

/// One slice per query head; 64 hidden columns.
RowSum attention_row_sum(const LlamaConfig& config, const ShardShape& shape);
RowSum ffn_row_sum(const LlamaConfig& config, const ShardShape& shape);
/// Likewise of the vision encoder. @pre config.vision
RowSum vision_attention_row_sum(const LlamaConfig& config, const ShardShape& shape);
RowSum vision_ffn_row_sum(const LlamaConfig& config, const ShardShape& shape);

/// A row-parallel product whose sum is scaled before it is added.
struct GatedProduct {
  const RowSum& row_sum;
  const at::Tensor& input;  // [n, this rank's features]
  const ops::PackedWeight& weight;
  at::Tensor bias;  // of the whole sum; undefined: none
  float gate = 1;
};
/// For the n rows of a product of W columns.
struct SumViews {
  at::Tensor partials;  // [nodes, n, W]
  at::Tensor sum;       // [n, W]
};

/// target += gate * (sum over all ranks of input weight^T + bias). Collective. target [n, W].
void add_gated_sum(const ops::Context& context, parallel::Communicator& communicator,
                   const GatedProduct& product, SumViews views, at::Tensor& target);

}  // namespace caravan::model
