#pragma once
// Cuts attention into tiles of a few queries that read one KV head and shares them among the
// threads. Private to src/ops.

#include <algorithm>
#include <cstdint>
#include <span>

#include "caravan/core/partition.h"
#include "caravan/core/standard_floats.h"
#include "caravan/ops/attention.h"
#include "caravan/ops/context.h"
#include "caravan/ops/key_run.h"
#include "caravan/ops/kv_pool.h"
#include "cpu/kernel_table.h"
#include "tensor_check.h"

namespace caravan::ops {

/// Rows of the batch, and what their queries see.
struct QueryRows {
  std::int64_t row_begin = 0;
  std::int64_t row_count = 0;
  std::int64_t visible = 0;       // positions that the first row sees
  std::int64_t visible_step = 0;  // how many more each next row sees
  const std::int32_t* blocks = nullptr;
  std::span<const KeyRun> runs;  // empty: every position below `visible` holds a key
};

/// Consecutive query heads that read the same KV head.
struct HeadGroup {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t kv = 0;
};

inline HeadGroup group_at(const HeadMap& heads, std::int64_t first) {
  const auto& map = heads.kv_head_of_query;
  const auto begin = map.begin() + first;
  const auto end = std::find_if(begin, map.end(), [&](std::int32_t kv) { return kv != *begin; });
  return {first, end - begin, *begin};
}

/// Queries [begin, end) of the (row, head of the group) pairs of some rows, rows outside.
struct AttentionItem {
  QueryRows rows;
  HeadGroup group;
  Range pairs;
  std::int64_t cost = 0;  // about: positions read, times what a query adds
};

/// Cuts the step into items of at most `most` queries and calls use(item) for each, in a fixed
/// order. `view(sequence)` gives the QueryRows of a sequence.
template <typename Sequence, typename View, typename Use>
void for_each_item(const HeadMap& heads, std::span<const Sequence> sequences, const View& view,
                   std::int64_t most, const Use& use) {
  for (const Sequence& sequence : sequences) {
    const QueryRows rows = view(sequence);
    for (std::int64_t head = 0; head < heads.local_query_heads;) {
      const HeadGroup group = group_at(heads, head);
      const std::int64_t pairs = rows.row_count * group.count;
      const std::int64_t parts = ceil_div(pairs, most);
      for (std::int64_t part = 0; part < parts; ++part) {
        const Range cut = split_evenly(pairs, parts, part);
        const std::int64_t visible = rows.visible + (cut.end - 1) / group.count * rows.visible_step;
        // Reading a block costs about as much as four queries' arithmetic on it.
        use(AttentionItem{rows, group, cut, (visible + 32) * (cut.size() + 4)});
      }
      head += group.count;
    }
  }
}

/// Everything that all items of a call share. The queries of a row lie first in its row.
struct AttentionOperands {
  RowsView queries;
  RowsView out;
  const KvPool* pool = nullptr;
  std::int64_t layer = 0;
  float scale = 0;
};

AttentionTile make_tile(const AttentionOperands& operands, const AttentionItem& item);

/// Attends for all rows of all sequences.
template <typename Sequence, typename View>
void attend(const Context& context, const AttentionOperands& operands, const HeadMap& heads,
            std::span<const Sequence> sequences, const View& view) {
  const KernelTable& kernels = context.kernels();
  std::int64_t total_cost = 0;
  std::int64_t longest = 0;
  for_each_item(heads, sequences, view, kernels.attention_queries, [&](const AttentionItem& item) {
    total_cost += item.cost;
    longest =
        std::max(longest, item.rows.visible + (item.rows.row_count - 1) * item.rows.visible_step);
  });
  if (total_cost == 0) return;

  const std::int64_t score_stride = round_up(longest, 16);
  const std::int64_t query_floats =
      round_up(kernels.attention_queries * operands.pool->shape().head_dim, 16);
  const std::int64_t thread_floats = query_floats + kernels.attention_queries * score_stride;
  float* const scratch = context.scratch(thread_floats * context.team().size());

  const StandardFloats floats;
  // A thread does the items whose middle lies in its share of the sum of all costs.
  context.team().run([&](ThreadShare share) {
    const Range mine = split_evenly(total_cost, share.count, share.index);
    float* const own = scratch + share.index * thread_floats;
    std::int64_t cost = 0;
    for_each_item(heads, sequences, view, kernels.attention_queries,
                  [&](const AttentionItem& item) {
                    if (mine.contains(cost + item.cost / 2)) {
                      AttentionTile tile = make_tile(operands, item);
                      tile.query_scratch = own;
                      tile.scores = own + query_floats;
                      tile.score_stride = score_stride;
                      kernels.attention(tile);
                    }
                    cost += item.cost;
                  });
  });
}

}  // namespace caravan::ops
