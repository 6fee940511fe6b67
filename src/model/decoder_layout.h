#pragma once
// How a decoder's sums and heads lie on the ranks, in the form that communicators and operations
// take.

#include <cstdint>
#include <vector>

#include "caravan/core/partition.h"
#include "caravan/model/config.h"
#include "caravan/model/shard_plan.h"
#include "caravan/ops/attention.h"
#include "caravan/ops/linear.h"
#include "caravan/parallel/communicator.h"

namespace caravan::model {

/// Slices of the attention output that each rank owns: its query heads.
std::vector<Range> owned_heads(const LlamaConfig& config, int num_ranks);

/// Slices of the feed-forward that each rank owns: runs of kBandColumns columns.
std::vector<Range> owned_ffn_slices(const LlamaConfig& config, int num_ranks);

/// Slices of `width` columns that this rank owns, and the tree nodes to make of them.
ops::SliceLayout slice_layout(const parallel::SlicedSum& sum, Range slices, std::int64_t width,
                              std::int64_t local_columns, int rank);

/// Which of this rank's KV heads each of its query heads reads.
ops::HeadMap head_map(const LlamaConfig& config, const ShardShape& shape);

}  // namespace caravan::model
