#pragma once
// Tokens of a block of rows, chosen on all threads before the rows are used one after the other.
//
// A choice is the same whoever makes it and when: it depends on what a row states alone. Leaves
// out: which rows can be chosen before the others are used (engine.cpp).

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "caravan/engine/request.h"
#include "caravan/engine/sampler.h"
#include "caravan/ops/context.h"

namespace caravan::engine {

class ChoicesAhead {
 public:
  /// Arguments as those of Sampler. The context's threads do the work.
  ChoicesAhead(const ops::Context& context, std::int64_t vocab_size, std::int64_t num_sampleable);
  ~ChoicesAhead();

  struct Row {
    std::span<const float> logits;
    const Request* request = nullptr;  // null: not to be chosen now
    std::span<const std::int32_t> generated;
    std::int64_t choice = 0;
  };
  struct Choice {
    std::optional<std::int32_t> id;  // empty: not chosen; whoever uses the row finds out why
    std::optional<TokenLogprob> logprob;
  };
  /// One choice for each row, valid until the next call. Not worth the way for a single row or
  /// thread: nothing is chosen then.
  std::span<Choice> choose(std::span<const Row> rows);

 private:
  struct Worker;
  static Choice choose(Sampler& sampler, const Row& row);

  const ops::Context& context_;
  std::int64_t vocab_size_;
  std::int64_t num_sampleable_;
  std::vector<std::unique_ptr<Worker>> workers_;  // one per thread, made when first needed
  std::vector<Choice> choices_;
};

}  // namespace caravan::engine
