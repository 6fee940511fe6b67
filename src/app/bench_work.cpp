#include "bench_work.h"

#include <algorithm>

#include "caravan/core/partition.h"

namespace caravan::app {

std::vector<std::int32_t> MadeUpPrompts::next(std::int64_t length) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < length; ++i) {
    // Knuth, The Art of Computer Programming 3.3.4, table 1, line 26.
    state_ = state_ * 6364136223846793005U + 1;
    ids.push_back(
        static_cast<std::int32_t>((state_ >> 33U) % static_cast<std::uint64_t>(vocab_size_)));
  }
  return ids;
}

Rows prompt_rows(std::int64_t positions, std::int64_t chunk) {
  const auto length = static_cast<double>(positions);
  Rows work{ceil_div(positions, chunk), positions, 1, length * (length + 1) / 2, 0};
  for (std::int64_t end = chunk;; end += chunk) {
    work.keys_read += static_cast<double>(std::min(end, positions));
    if (end >= positions) return work;
  }
}

WorkAmount amount_of(const model::LlamaConfig& config, const Storage& storage, const Rows& work) {
  const auto width = static_cast<double>(config.hidden_size);
  const auto heads = static_cast<double>(config.num_heads * config.head_dim);
  const auto kv_heads = static_cast<double>(config.num_kv_heads * config.head_dim);
  const auto layers = static_cast<double>(config.num_layers);
  const double layer =
      width * (2 * heads + 2 * kv_heads) + 3 * width * static_cast<double>(config.ffn_size);
  const double head = width * static_cast<double>(config.vocab_size);
  WorkAmount amount;
  amount.flop = 2 * (layer * layers * static_cast<double>(work.rows) +
                     head * static_cast<double>(work.logit_rows)) +
                4 * heads * layers * work.seen;
  amount.bytes =
      static_cast<double>(storage.weight_bytes) * static_cast<double>(work.steps) +
      2 * kv_heads * layers * static_cast<double>(element_bytes(storage.kv_dtype)) * work.keys_read;
  return amount;
}

}  // namespace caravan::app
