// Rotary embedding and the cache write. The rotation is plain arithmetic with one rounding per
// operation, the same in every build, so it needs no kernel of its own.

#include <algorithm>

#include "cache_element.h"
#include "caravan/core/error.h"
#include "caravan/ops/attention.h"
#include "cpu/kernel_table.h"
#include "head_check.h"
#include "tensor_check.h"

namespace caravan::ops {
namespace {

constexpr std::int64_t kLanes = KvPool::kBlockTokens;

/// Interleaved pairs, as in the reference implementation of Llama ("apply_rotary_emb").
void rotate(float* head, const float* cosines, const float* sines, std::int64_t pairs) {
  for (std::int64_t i = 0; i < pairs; ++i) {
    const float real = head[2 * i];
    const float imaginary = head[2 * i + 1];
    head[2 * i] = real * cosines[i] - imaginary * sines[i];
    head[2 * i + 1] = imaginary * cosines[i] + real * sines[i];
  }
}

/// Where a row's keys and values go.
template <typename Element>
struct Slot {
  Element* keys = nullptr;    // [head][d] with 16 elements from one d to the next
  Element* values = nullptr;  // [head] with 16 * padded_head_dim elements from one to the next
};

template <typename Element>
Slot<Element> slot_of(const KvPool& pool, std::int64_t layer, const SequenceRows& sequence,
                      std::int64_t position) {
  const auto block =
      static_cast<std::int64_t>(sequence.blocks[static_cast<std::size_t>(position / kLanes)]);
  const std::int64_t lane = position % kLanes;
  return {static_cast<Element*>(pool.key_data(layer)) + block * pool.key_block_stride() + lane,
          static_cast<Element*>(pool.value_data(layer)) + block * pool.value_block_stride() +
              lane * pool.padded_head_dim()};
}

}  // namespace

void rope_tables(const Context& context, std::span<const std::int32_t> positions,
                 std::span<const float> inv_freq, at::Tensor& cosines, at::Tensor& sines) {
  const auto rows = static_cast<std::int64_t>(positions.size());
  const auto pairs = static_cast<std::int64_t>(inv_freq.size());
  const RowsView cosine = rows_view(cosines, rows, pairs, "rope_tables", "cosines");
  const RowsView sine = rows_view(sines, rows, pairs, "rope_tables", "sines");
  for_items(context, rows, pairs * 10, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      // The angles are put where their sines will be.
      const auto position = static_cast<float>(positions[static_cast<std::size_t>(n)]);
      for (std::int64_t i = 0; i < pairs; ++i) {
        sine.row(n)[i] = position * inv_freq[static_cast<std::size_t>(i)];
      }
      context.kernels().sin_cos(sine.row(n), pairs, sine.row(n), cosine.row(n));
    }
  });
}

void rope_and_store(const Context& context, at::Tensor& qkv, const at::Tensor& cosines,
                    const at::Tensor& sines, const HeadMap& heads,
                    std::span<const SequenceRows> sequences, KvPool& pool, std::int64_t layer) {
  const std::int64_t d = pool.shape().head_dim;
  const std::int64_t num_queries = heads.local_query_heads;
  const std::int64_t num_kv = heads.local_kv_heads;
  const RowsView rows = rows_view(qkv, -1, (num_queries + 2 * num_kv) * d, "rope_and_store", "qkv");
  const RowsView cosine = rows_view(cosines, rows.rows, -1, "rope_and_store", "cosines");
  const RowsView sine = rows_view(sines, rows.rows, cosine.width, "rope_and_store", "sines");
  CARAVAN_ASSERT(2 * cosine.width <= d, "rope_and_store: {} pairs in a head of {}", cosine.width,
                 d);
  check_heads(heads, pool, "rope_and_store");
  check_sequences(sequences, rows.rows, pool, "rope_and_store");
  if (rows.width == 0) return;
  const auto rotate_row = [&](std::int64_t n) {
    for (std::int64_t head = 0; head < num_queries + num_kv; ++head) {
      rotate(rows.row(n) + head * d, cosine.row(n), sine.row(n), cosine.width);
    }
  };
  const auto store_row = [&](std::int64_t n, const auto& slot) {
    const float* const keys = rows.row(n) + num_queries * d;
    const float* const values = keys + num_kv * d;
    for (std::int64_t i = 0; i < num_kv * d; ++i) store_element(keys[i], slot.keys[i * kLanes]);
    for (std::int64_t head = 0; head < num_kv; ++head) {
      auto* const target = slot.values + head * kLanes * pool.padded_head_dim();
      for (std::int64_t i = 0; i < d; ++i) store_element(values[head * d + i], target[i]);
    }
  };
  std::int64_t total = 0;
  for (const SequenceRows& sequence : sequences) total += sequence.row_count;
  for_items(context, total, rows.width, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t first = 0;  // of the sequence, among the rows of all sequences
    for (const SequenceRows& sequence : sequences) {
      const std::int64_t last = std::min(end - first, sequence.row_count);
      for (std::int64_t i = std::max<std::int64_t>(begin - first, 0); i < last; ++i) {
        const std::int64_t n = sequence.row_begin + i;
        rotate_row(n);
        if (num_kv == 0) continue;
        with_cache_element(pool, [&](auto element) {
          store_row(n,
                    slot_of<decltype(element)>(pool, layer, sequence, sequence.position_begin + i));
        });
      }
      first += sequence.row_count;
    }
  });
}

}  // namespace caravan::ops
