#include "decoder_layout.h"

#include <algorithm>

#include "caravan/model/decoder.h"
#include "row_sum.h"

namespace caravan::model {
namespace {}  // namespace

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
  const std::int64_t nodes = std::max(attention_row_sum(config, shape).num_nodes(),
                                      ffn_row_sum(config, shape).num_nodes());
  // x, normed, hidden; queries, keys, values; attention; partial sums; gate, up, activated; rotary
  // tables; and the input of a product, which the operations pack once more.
  const std::int64_t per_row = 3 * width + 2 * query_size + 2 * kv_size + nodes * width +
                               3 * shape.local_ffn_size() + config.head_dim +
                               std::max({width, shape.local_ffn_size(), query_size});
  std::int64_t logits = shape.local_vocab_size();
  if (shape.num_ranks > 1 && shape.rank == 0) logits += 2 * config.vocab_size;
  const std::int64_t keys =
      std::max(config.max_positions, limits.seen_blocks * ops::KvPool::kBlockTokens);
  const std::int64_t scores = limits.num_threads * kScoreRows * keys;
  const std::int64_t exchange = shape.num_ranks > 1 ? parallel::kExchangeBytes : 0;
  const std::int64_t images = config.vision
                                  ? 4 * limits.max_step_tokens * width +
                                        encoder_activation_bytes(config, shape, limits.num_threads)
                                  : 0;
  return 4 * (limits.max_step_tokens * per_row + Decoder::kLogitChunk * logits + scores) +
         exchange + images;
}

}  // namespace caravan::model
