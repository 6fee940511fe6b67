#pragma once
// Attention without a causal order: every query of a row range sees the same runs of keys. For the
// image encoder and for text that reads images.
//
// Numerics as in attention.h: scores are chains over d, the softmax sums 16 lanes (place of the key
// in its block), values are chains over the keys in the order of the runs. What a row gets depends
// on its query and on the keys it sees, in order; not on blocks, chunks, batch mates, threads or
// instruction set. Memory is linear in the keys: a few score rows per thread.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "caravan/ops/attention.h"
#include "caravan/ops/context.h"
#include "caravan/ops/key_run.h"
#include "caravan/ops/kv_pool.h"

namespace caravan::ops {

/// Consecutive rows of the batch that see the same keys.
struct VisibleRows {
  std::int64_t row_begin = 0;
  std::int64_t row_count = 0;
  std::span<const KeyRun> runs;          // at least one
  std::span<const std::int32_t> blocks;  // of all runs in order, each ceil(tokens / 16) of them
};

/// Stores keys and values of tokens [token_begin, token_begin + n) of a run. What lies behind the
/// last of them in its block becomes zero, so store a run from its beginning to its end.
///
/// @param keys    [n, K * d] float32, rows contiguous; values likewise.
/// @param blocks  of the run, from its first token on.
void store_keys_values(const Context& context, const at::Tensor& keys, const at::Tensor& values,
                       std::span<const std::int32_t> blocks, std::int64_t token_begin, KvPool& pool,
                       std::int64_t layer);

/// out[n] = concat over local query heads of softmax(q.K / sqrt(d) + bias of the run) V over the
/// keys that row n sees. Rows in no range stay as they are.
///
/// @param queries  [N, H * d] float32, rows contiguous.
/// @param out      [N, H * d] float32, rows contiguous; no part of `queries`.
void full_attention(const Context& context, const at::Tensor& queries, const HeadMap& heads,
                    std::span<const VisibleRows> ranges, const KvPool& pool, std::int64_t layer,
                    at::Tensor& out);

}  // namespace caravan::ops
