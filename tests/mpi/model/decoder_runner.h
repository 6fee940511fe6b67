#pragma once
// Feeds sequences to a decoder step by step, for tests that compare logits.

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "caravan/core/partition.h"
#include "caravan/model/decoder.h"
#include "support/tiny_model.h"

namespace caravan::test {

inline std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocab,
                                               std::uint64_t seed) {
  SmallRandom random(seed);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<std::int32_t>(random.below(vocab)));
  }
  return tokens;
}

/// Feeds sequences to a decoder in steps of given chunk sizes and collects all logits (rank 0) of
/// each sequence.
class Runner {
 public:
  Runner(const model::LlamaConfig& config, model::WeightSource& source, const ops::Context& context,
         parallel::Communicator& comm)
      : decoder_(config, source, context, comm, {64, 40}) {}

  /// One step: the next `counts[i]` tokens of sequence i.
  void step(const std::vector<std::vector<std::int32_t>>& sequences,
            const std::vector<std::int64_t>& counts) {
    model::StepPlan plan;
    std::vector<std::pair<std::size_t, std::int64_t>> row_of;
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      if (counts[s] == 0) continue;
      const std::int64_t done = done_[s];
      const auto rows = static_cast<std::int32_t>(plan.tokens.size());
      const std::int64_t needed = ceil_div(done + counts[s], ops::KvPool::kBlockTokens);
      while (std::ssize(blocks_[s]) < needed) blocks_[s].push_back(next_block());
      plan.segments.push_back({rows, static_cast<std::int32_t>(counts[s]),
                               static_cast<std::int32_t>(done),
                               static_cast<std::int32_t>(plan.blocks.size()),
                               static_cast<std::int32_t>(blocks_[s].size())});
      plan.blocks.insert(plan.blocks.end(), blocks_[s].begin(), blocks_[s].end());
      for (std::int64_t i = 0; i < counts[s]; ++i) {
        plan.logit_rows.push_back(static_cast<std::int32_t>(plan.tokens.size()));
        plan.tokens.push_back(sequences[s][static_cast<std::size_t>(done + i)]);
        plan.positions.push_back(static_cast<std::int32_t>(done + i));
        row_of.emplace_back(s, done + i);
      }
      done_[s] += counts[s];
    }
    decoder_.forward(plan);
    decoder_.logits([&](std::int64_t index, std::span<const float> row) {
      logits_[row_of[static_cast<std::size_t>(index)]] = {row.begin(), row.end()};
    });
  }
  const std::vector<float>& logits(std::size_t sequence, std::int64_t position) const {
    return logits_.at({sequence, position});
  }
  model::Decoder& decoder() { return decoder_; }

 private:
  // Blocks out of order and with gaps: placement must not matter.
  std::int32_t next_block() { return static_cast<std::int32_t>((next_block_++ * 7 + 3) % 40); }

  model::Decoder decoder_;
  std::map<std::size_t, std::int64_t> done_;
  std::map<std::size_t, std::vector<std::int32_t>> blocks_;
  std::map<std::pair<std::size_t, std::int64_t>, std::vector<float>> logits_;
  int next_block_ = 0;
};

}  // namespace caravan::test
