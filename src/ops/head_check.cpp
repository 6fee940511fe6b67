#include "head_check.h"

#include "caravan/core/error.h"
#include "caravan/core/partition.h"

namespace caravan::ops {

void check_heads(const HeadMap& heads, const KvPool& pool, const char* operation) {
  CARAVAN_ASSERT(heads.local_kv_heads == pool.shape().local_kv_heads,
                 "{}: {} key-value heads, the pool has {}", operation, heads.local_kv_heads,
                 pool.shape().local_kv_heads);
  const auto mapped = static_cast<std::int64_t>(heads.kv_head_of_query.size());
  CARAVAN_ASSERT(mapped == heads.local_query_heads, "{}: {} query heads, {} in the map", operation,
                 heads.local_query_heads, mapped);
  for (const std::int32_t kv : heads.kv_head_of_query) {
    CARAVAN_ASSERT(kv >= 0 && kv < heads.local_kv_heads, "{}: key-value head {} of {}", operation,
                   kv, heads.local_kv_heads);
  }
}

void check_sequences(std::span<const SequenceRows> sequences, std::int64_t num_rows,
                     const KvPool& pool, const char* operation) {
  for (const SequenceRows& sequence : sequences) {
    CARAVAN_ASSERT(sequence.row_begin >= 0 && sequence.row_count >= 0 &&
                       sequence.row_begin + sequence.row_count <= num_rows,
                   "{}: rows [{}, {}) of a batch of {}", operation, sequence.row_begin,
                   sequence.row_begin + sequence.row_count, num_rows);
    const std::int64_t positions = sequence.position_begin + sequence.row_count;
    CARAVAN_ASSERT(
        sequence.position_begin >= 0 && ceil_div(positions, KvPool::kBlockTokens) <=
                                            static_cast<std::int64_t>(sequence.blocks.size()),
        "{}: {} positions need more than the {} blocks given", operation, positions,
        sequence.blocks.size());
    const auto used = static_cast<std::size_t>(ceil_div(positions, KvPool::kBlockTokens));
    for (const std::int32_t block : sequence.blocks.first(used)) {
      CARAVAN_ASSERT(block >= 0 && block < pool.shape().num_blocks, "{}: block {} of a pool of {}",
                     operation, block, pool.shape().num_blocks);
    }
  }
}

}  // namespace caravan::ops
