#include "caravan/ops/full_attention.h"

#include <algorithm>
#include <cmath>

#include "attention_items.h"
#include "cache_element.h"
#include "caravan/core/error.h"
#include "head_check.h"
#include "tensor_check.h"

namespace caravan::ops {
namespace {

constexpr std::int64_t kLanes = KvPool::kBlockTokens;

/// Positions up to the last key; the runs before the last one are rounded up to whole blocks.
std::int64_t positions_of(std::span<const KeyRun> runs) {
  std::int64_t begin = 0;
  for (const KeyRun& run : runs.first(runs.size() - 1)) begin += round_up(run.tokens, kLanes);
  return begin + runs.back().tokens;
}

void check_ranges(std::span<const VisibleRows> ranges, std::int64_t num_rows, const KvPool& pool) {
  for (const VisibleRows& range : ranges) {
    CARAVAN_ASSERT(range.row_begin >= 0 && range.row_count >= 0 &&
                       range.row_begin + range.row_count <= num_rows,
                   "full_attention: rows [{}, {}) of a batch of {}", range.row_begin,
                   range.row_begin + range.row_count, num_rows);
    CARAVAN_ASSERT(!range.runs.empty(), "full_attention: rows from {} on see no keys",
                   range.row_begin);
    for (const KeyRun& run : range.runs) {
      CARAVAN_ASSERT(run.tokens >= 1 && std::isfinite(run.score_bias),
                     "full_attention: a run of {} keys with bias {}", run.tokens, run.score_bias);
    }
    const std::int64_t used = ceil_div(positions_of(range.runs), kLanes);
    CARAVAN_ASSERT(used <= std::ssize(range.blocks),
                   "full_attention: the runs need {} blocks, {} are given", used,
                   range.blocks.size());
    for (const std::int32_t block : range.blocks.first(static_cast<std::size_t>(used))) {
      CARAVAN_ASSERT(block >= 0 && block < pool.shape().num_blocks,
                     "full_attention: block {} of a pool of {}", block, pool.shape().num_blocks);
    }
  }
}

/// Keys and values of one block in a layer of the pool.
template <typename Element>
struct BlockView {
  Element* keys = nullptr;    // [head * d][16]
  Element* values = nullptr;  // [head][16][padded d]
};

template <typename Element>
void store_row(const float* keys, const float* values, const KvPool& pool,
               const BlockView<Element>& block, std::int64_t lane) {
  const std::int64_t heads = pool.shape().local_kv_heads;
  const std::int64_t d = pool.shape().head_dim;
  const std::int64_t padded = pool.padded_head_dim();
  for (std::int64_t i = 0; i < heads * d; ++i) {
    store_element(keys[i], block.keys[i * kLanes + lane]);
  }
  for (std::int64_t head = 0; head < heads; ++head) {
    Element* const target = block.values + (head * kLanes + lane) * padded;
    for (std::int64_t i = 0; i < d; ++i) store_element(values[head * d + i], target[i]);
  }
}

/// A key that is never seen is masked, but its value is still multiplied by zero.
template <typename Element>
void clear_from(const KvPool& pool, const BlockView<Element>& block, std::int64_t first_lane) {
  const std::int64_t heads = pool.shape().local_kv_heads;
  const std::int64_t padded = pool.padded_head_dim();
  for (std::int64_t i = 0; i < heads * pool.shape().head_dim; ++i) {
    std::fill(block.keys + i * kLanes + first_lane, block.keys + (i + 1) * kLanes, Element{});
  }
  for (std::int64_t head = 0; head < heads; ++head) {
    std::fill(block.values + (head * kLanes + first_lane) * padded,
              block.values + (head + 1) * kLanes * padded, Element{});
  }
}

}  // namespace

void store_keys_values(const Context& context, const at::Tensor& keys, const at::Tensor& values,
                       std::span<const std::int32_t> blocks, std::int64_t token_begin, KvPool& pool,
                       std::int64_t layer) {
  const std::int64_t width = pool.shape().local_kv_heads * pool.shape().head_dim;
  const RowsView key_rows = rows_view(keys, -1, width, "store_keys_values", "keys");
  const RowsView value_rows =
      rows_view(values, key_rows.rows, width, "store_keys_values", "values");
  const std::int64_t token_end = token_begin + key_rows.rows;
  CARAVAN_ASSERT(token_begin >= 0 && ceil_div(token_end, kLanes) <= std::ssize(blocks),
                 "store_keys_values: tokens [{}, {}) need more than the {} blocks given",
                 token_begin, token_end, blocks.size());
  for (const std::int32_t block : blocks) {
    CARAVAN_ASSERT(block >= 0 && block < pool.shape().num_blocks,
                   "store_keys_values: block {} of a pool of {}", block, pool.shape().num_blocks);
  }
  if (key_rows.rows == 0 || width == 0) return;
  with_cache_element(pool, [&](auto element) {
    using Element = decltype(element);
    const auto block_of = [&](std::int64_t token) {
      const std::int64_t block = blocks[static_cast<std::size_t>(token / kLanes)];
      return BlockView<Element>{
          static_cast<Element*>(pool.key_data(layer)) + block * pool.key_block_stride(),
          static_cast<Element*>(pool.value_data(layer)) + block * pool.value_block_stride()};
    };
    for_items(context, key_rows.rows, width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        const std::int64_t token = token_begin + n;
        store_row(key_rows.row(n), value_rows.row(n), pool, block_of(token), token % kLanes);
      }
    });
    if (token_end % kLanes != 0) clear_from(pool, block_of(token_end - 1), token_end % kLanes);
  });
}

void full_attention(const Context& context, const at::Tensor& queries, const HeadMap& heads,
                    std::span<const VisibleRows> ranges, const KvPool& pool, std::int64_t layer,
                    at::Tensor& out) {
  const std::int64_t width = heads.local_query_heads * pool.shape().head_dim;
  AttentionOperands operands;
  operands.queries = rows_view(queries, -1, width, "full_attention", "queries");
  operands.out = rows_view(out, operands.queries.rows, width, "full_attention", "out");
  operands.pool = &pool;
  operands.layer = layer;
  operands.scale = 1.0F / std::sqrt(static_cast<float>(pool.shape().head_dim));
  check_no_overlap(operands.queries, operands.out, "full_attention");
  check_heads(heads, pool, "full_attention");
  check_ranges(ranges, operands.queries.rows, pool);
  attend(context, operands, heads, ranges, [](const VisibleRows& range) {
    return QueryRows{range.row_begin,     range.row_count, positions_of(range.runs), 0,
                     range.blocks.data(), range.runs};
  });
}

}  // namespace caravan::ops
