#include "caravan/ops/attention.h"

#include <algorithm>
#include <cmath>

#include "caravan/core/error.h"
#include "cpu/kernel_table.h"
#include "head_check.h"
#include "tensor_check.h"

namespace caravan::ops {
namespace {

/// Consecutive query heads that read the same KV head.
struct HeadGroup {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t kv = 0;
};

HeadGroup group_at(const HeadMap& heads, std::int64_t first) {
  const auto& map = heads.kv_head_of_query;
  const auto begin = map.begin() + first;
  const auto end = std::find_if(begin, map.end(), [&](std::int32_t kv) { return kv != *begin; });
  return {first, end - begin, *begin};
}

/// Queries [begin, end) of a sequence's (row, head of the group) pairs, rows outside.
struct Item {
  const SequenceRows* sequence = nullptr;
  HeadGroup group;
  Range pairs;
  std::int64_t cost = 0;  // about: positions read, times what a query adds
};

/// Cuts the step into items of at most `most` queries and calls use(item) for each, in a fixed
/// order.
template <typename Use>
void for_each_item(const HeadMap& heads, std::span<const SequenceRows> sequences, std::int64_t most,
                   const Use& use) {
  for (const SequenceRows& sequence : sequences) {
    for (std::int64_t head = 0; head < heads.local_query_heads;) {
      const HeadGroup group = group_at(heads, head);
      const std::int64_t pairs = sequence.row_count * group.count;
      const std::int64_t parts = ceil_div(pairs, most);
      for (std::int64_t part = 0; part < parts; ++part) {
        const Range cut = split_evenly(pairs, parts, part);
        const std::int64_t visible = sequence.position_begin + (cut.end - 1) / group.count + 1;
        // Reading a block costs about as much as four queries' arithmetic on it.
        use(Item{&sequence, group, cut, (visible + 32) * (cut.size() + 4)});
      }
      head += group.count;
    }
  }
}

/// Everything that all items of a call share.
struct Operands {
  RowsView qkv;
  RowsView out;
  const KvPool* pool;
  std::int64_t layer;
  float scale;
};

AttentionTile make_tile(const Operands& operands, const Item& item) {
  const KvPool& pool = *operands.pool;
  const std::int64_t d = pool.shape().head_dim;
  AttentionTile tile;
  tile.count = static_cast<int>(item.pairs.size());
  for (int i = 0; i < tile.count; ++i) {
    const std::int64_t row = (item.pairs.begin + i) / item.group.count;
    const std::int64_t head = item.group.first + (item.pairs.begin + i) % item.group.count;
    const std::int64_t n = item.sequence->row_begin + row;
    tile.queries[i] = operands.qkv.row(n) + head * d;
    tile.outputs[i] = operands.out.row(n) + head * d;
    tile.visible[i] = item.sequence->position_begin + row + 1;
  }
  tile.keys = pool.keys(operands.layer) + item.group.kv * d * KvPool::kBlockTokens;
  tile.values =
      pool.values(operands.layer) + item.group.kv * pool.padded_head_dim() * KvPool::kBlockTokens;
  tile.key_block_stride = pool.key_block_stride();
  tile.value_block_stride = pool.value_block_stride();
  tile.blocks = item.sequence->blocks.data();
  tile.head_dim = d;
  tile.padded_dim = pool.padded_head_dim();
  tile.scale = operands.scale;
  return tile;
}

}  // namespace

void attention(const Context& context, const at::Tensor& qkv, const HeadMap& heads,
               std::span<const SequenceRows> sequences, const KvPool& pool, std::int64_t layer,
               at::Tensor& out) {
  const std::int64_t d = pool.shape().head_dim;
  const std::int64_t qkv_width = (heads.local_query_heads + 2 * heads.local_kv_heads) * d;
  Operands operands;
  operands.qkv = rows_view(qkv, -1, qkv_width, "attention", "qkv");
  operands.out = rows_view(out, operands.qkv.rows, heads.local_query_heads * d, "attention", "out");
  operands.pool = &pool;
  operands.layer = layer;
  operands.scale = 1.0F / std::sqrt(static_cast<float>(d));
  check_no_overlap(operands.qkv, operands.out, "attention");
  check_heads(heads, pool, "attention");
  check_sequences(sequences, operands.qkv.rows, pool, "attention");

  const KernelTable& kernels = context.kernels();
  std::int64_t total_cost = 0;
  std::int64_t longest = 0;
  for (const SequenceRows& sequence : sequences) {
    longest = std::max(longest, sequence.position_begin + sequence.row_count);
  }
  for_each_item(heads, sequences, kernels.attention_queries,
                [&](const Item& item) { total_cost += item.cost; });
  if (total_cost == 0) return;

  const std::int64_t score_stride = round_up(longest, 16);
  const std::int64_t query_floats = round_up(kernels.attention_queries * d, 16);
  const std::int64_t thread_floats = query_floats + kernels.attention_queries * score_stride;
  float* const scratch = context.scratch(thread_floats * context.team().size());

  // A thread does the items whose middle lies in its share of the sum of all costs.
  const auto work = [&](ThreadShare share) {
    const Range mine = split_evenly(total_cost, share.count, share.index);
    float* const own = scratch + share.index * thread_floats;
    std::int64_t cost = 0;
    for_each_item(heads, sequences, kernels.attention_queries, [&](const Item& item) {
      if (mine.contains(cost + item.cost / 2)) {
        AttentionTile tile = make_tile(operands, item);
        tile.query_scratch = own;
        tile.scores = own + query_floats;
        tile.score_stride = score_stride;
        kernels.attention(tile);
      }
      cost += item.cost;
    });
  };
  context.team().run(work);
}

}  // namespace caravan::ops
