#pragma once
// Causal attention of a ragged batch over KV blocks, with rotary embedding and cache write before
// it.
//
// Numerics: scores are chains over d; softmax subtracts the row maximum and sums 16 lanes (position
// mod 16), folded in a fixed order; values are chains over positions. So chunking, block placement,
// batch mates, threads and instruction set change no bit. Memory is linear in the context: a
// few score rows per thread.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "caravan/ops/context.h"
#include "caravan/ops/kv_pool.h"

namespace caravan::ops {

/// Consecutive rows of the batch that continue one sequence.
struct SequenceRows {
  std::int64_t row_begin = 0;  // first row in the batch
  std::int64_t row_count = 0;
  std::int64_t position_begin =
      0;  // position of the first row in its sequence; positions before it are cached
  std::span<const std::int32_t>
      blocks;  // block table, at least ceil((position_begin + row_count) / 16) entries
};

/// Which KV head each local query head reads.
struct HeadMap {
  std::int64_t local_query_heads = 0;
  std::int64_t local_kv_heads = 0;
  std::vector<std::int32_t> kv_head_of_query;  // local KV index per local query head
};

/// cos and sin of position * inv_freq, [N, d/2] each, for the rows of a step. Accurate to 1 ulp for
/// any position below 2^24; the angle is rounded to float32 before, as the references do.
void rope_tables(const Context& context, std::span<const std::int32_t> positions,
                 std::span<const float> inv_freq, at::Tensor& cosines, at::Tensor& sines);

/// Rotates queries and keys (interleaved pairs: elements 2i and 2i+1) and stores keys and values in
/// the pool.
///
/// @param qkv      [N, (H + 2K) * d] float32: queries, keys, values of this rank's heads; queries
/// are rotated in place.
/// @param cosines  [N, d/2]; sines likewise. d/2 may be smaller than half a head: the rest is not
/// rotated.
void rope_and_store(const Context& context, at::Tensor& qkv, const at::Tensor& cosines,
                    const at::Tensor& sines, const HeadMap& heads,
                    std::span<const SequenceRows> sequences, KvPool& pool, std::int64_t layer);

/// out[n] = concat over local query heads of softmax(q.K / sqrt(d)) V over positions <= that of row
/// n.
///
/// @param qkv  [N, (H + 2K) * d] after rope_and_store; only queries are read.
/// @param out  [N, H * d] float32, contiguous.
void attention(const Context& context, const at::Tensor& qkv, const HeadMap& heads,
               std::span<const SequenceRows> sequences, const KvPool& pool, std::int64_t layer,
               at::Tensor& out);

}  // namespace caravan::ops
