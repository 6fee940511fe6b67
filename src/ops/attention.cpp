#include "caravan/ops/attention.h"

#include <cmath>

#include "attention_items.h"
#include "head_check.h"
#include "tensor_check.h"

namespace caravan::ops {

AttentionTile make_tile(const AttentionOperands& operands, const AttentionItem& item) {
  const KvPool& pool = *operands.pool;
  const std::int64_t d = pool.shape().head_dim;
  AttentionTile tile;
  tile.count = static_cast<int>(item.pairs.size());
  for (int i = 0; i < tile.count; ++i) {
    const std::int64_t row = (item.pairs.begin + i) / item.group.count;
    const std::int64_t head = item.group.first + (item.pairs.begin + i) % item.group.count;
    const std::int64_t n = item.rows.row_begin + row;
    tile.queries[i] = operands.queries.row(n) + head * d;
    tile.outputs[i] = operands.out.row(n) + head * d;
    tile.visible[i] = item.rows.visible + row * item.rows.visible_step;
  }
  const std::int64_t bytes = element_bytes(pool.shape().dtype) * KvPool::kBlockTokens;
  tile.cache_dtype = pool.shape().dtype;
  tile.keys = static_cast<const char*>(pool.key_data(operands.layer)) + item.group.kv * d * bytes;
  tile.values = static_cast<const char*>(pool.value_data(operands.layer)) +
                item.group.kv * pool.padded_head_dim() * bytes;
  tile.key_block_stride = pool.key_block_stride();
  tile.value_block_stride = pool.value_block_stride();
  tile.blocks = item.rows.blocks;
  tile.runs = item.rows.runs.data();
  tile.num_runs = std::ssize(item.rows.runs);
  tile.head_dim = d;
  tile.padded_dim = pool.padded_head_dim();
  tile.scale = operands.scale;
  return tile;
}

void attention(const Context& context, const at::Tensor& qkv, const HeadMap& heads,
               std::span<const SequenceRows> sequences, const KvPool& pool, std::int64_t layer,
               at::Tensor& out) {
  const std::int64_t d = pool.shape().head_dim;
  const std::int64_t qkv_width = (heads.local_query_heads + 2 * heads.local_kv_heads) * d;
  AttentionOperands operands;
  operands.queries = rows_view(qkv, -1, qkv_width, "attention", "qkv");
  operands.out =
      rows_view(out, operands.queries.rows, heads.local_query_heads * d, "attention", "out");
  operands.pool = &pool;
  operands.layer = layer;
  operands.scale = 1.0F / std::sqrt(static_cast<float>(d));
  check_no_overlap(operands.queries, operands.out, "attention");
  check_heads(heads, pool, "attention");
  check_sequences(sequences, operands.queries.rows, pool, "attention");
  // Row i sees its own position and all before it.
  attend(context, operands, heads, sequences, [](const SequenceRows& sequence) {
    return QueryRows{sequence.row_begin,          sequence.row_count,
                     sequence.position_begin + 1, 1,
                     sequence.blocks.data(),      {}};
  });
}

}  // namespace caravan::ops
