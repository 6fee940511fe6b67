#pragma once
// The sums over ranks behind row-parallel products: how each kind cuts its input features into
// slices, and which of them a rank owns. Private to src/model.

#include "caravan/model/config.h"
#include "caravan/model/shard_plan.h"
#include "caravan/ops/linear.h"
#include "caravan/parallel/communicator.h"

namespace caravan::model {

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

}  // namespace caravan::model
