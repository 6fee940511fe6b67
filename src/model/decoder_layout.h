#pragma once
// How a decoder's heads lie on the ranks, in the form that operations take (its sums: row_sum.h).

#include "caravan/model/config.h"
#include "caravan/model/shard_plan.h"
#include "caravan/ops/attention.h"

namespace caravan::model {

/// Rows of attention scores that a thread works on at a time, at most (ops/attention.h).
inline constexpr std::int64_t kScoreRows = 12;

/// Which of this rank's KV heads each of its query heads reads.
ops::HeadMap head_map(const LlamaConfig& config, const ShardShape& shape);

}  // namespace caravan::model
