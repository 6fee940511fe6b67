#include "decoder_layout.h"

#include <algorithm>

#include "caravan/model/decoder.h"

namespace caravan::model {
namespace {

/// Rows of attention scores that a thread works on at a time, at most (ops/attention.h).
constexpr std::int64_t kScoreRows = 12;

}  // namespace

std::vector<Range> owned_heads(const LlamaConfig& config, int num_ranks) {
  std::vector<Range> owned;
  for (const ShardShape& shape : all_shard_shapes(config, num_ranks)) {
    owned.push_back(shape.query_heads);
  }
  return owned;
}

std::vector<Range> owned_ffn_slices(const LlamaConfig& config, int num_ranks) {
  std::vector<Range> owned;
  for (const ShardShape& shape : all_shard_shapes(config, num_ranks)) {
    owned.push_back({ceil_div(shape.ffn_columns.begin, kBandColumns),
                     ceil_div(shape.ffn_columns.end, kBandColumns)});
  }
  return owned;
}

ops::SliceLayout slice_layout(const parallel::SlicedSum& sum, Range slices, std::int64_t width,
                              std::int64_t local_columns, int rank) {
  ops::SliceLayout layout;
  layout.first_slice = slices.begin;
  layout.nodes = sum.nodes_of(rank);
  for (std::int64_t slice = 0; slice < slices.size(); ++slice) {
    layout.slices.push_back({slice * width, std::min((slice + 1) * width, local_columns)});
  }
  return layout;
}

ops::HeadMap head_map(const LlamaConfig& config, const ShardShape& shape) {
  ops::HeadMap map;
  map.local_query_heads = shape.local_num_heads();
  map.local_kv_heads = shape.local_num_kv_heads();
  const std::int64_t group = config.num_heads / config.num_kv_heads;
  for (std::int64_t head = shape.query_heads.begin; head < shape.query_heads.end; ++head) {
    map.kv_head_of_query.push_back(static_cast<std::int32_t>(head / group - shape.kv_heads.begin));
  }
  return map;
}

std::int64_t activation_bytes(const LlamaConfig& config, const ShardShape& shape,
                              const DecoderLimits& limits) {
  const std::int64_t width = config.hidden_size;
  const std::int64_t query_size = shape.local_num_heads() * config.head_dim;
  const std::int64_t kv_size = shape.local_num_kv_heads() * config.head_dim;
  const parallel::SlicedSum attention(num_attention_slices(config),
                                      owned_heads(config, shape.num_ranks));
  const parallel::SlicedSum ffn(num_ffn_slices(config), owned_ffn_slices(config, shape.num_ranks));
  const std::int64_t nodes =
      std::max(std::ssize(attention.nodes_of(shape.rank)), std::ssize(ffn.nodes_of(shape.rank)));
  // x, normed, hidden; queries, keys, values; attention; partial sums; gate, up, activated; rotary
  // tables; and the input of a product, which the operations pack once more.
  const std::int64_t per_row = 3 * width + 2 * query_size + 2 * kv_size + nodes * width +
                               3 * shape.local_ffn_size() + config.head_dim +
                               std::max({width, shape.local_ffn_size(), query_size});
  std::int64_t logits = shape.local_vocab_size();
  if (shape.num_ranks > 1 && shape.rank == 0) logits += 2 * config.vocab_size;
  const std::int64_t scores = limits.num_threads * kScoreRows * config.max_positions;
  const std::int64_t exchange = shape.num_ranks > 1 ? parallel::kExchangeBytes : 0;
  return 4 * (limits.max_step_tokens * per_row + Decoder::kLogitChunk * logits + scores) + exchange;
}

}  // namespace caravan::model
