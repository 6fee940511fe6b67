#pragma once
// From one row of logits to a token, and to log-probabilities.
//
// The chosen token depends on the row, the request's parameters, its tokens, and the draw of
// (seed, prompt, choice, position): on nothing else, and not on the CPU. Log-probabilities are
// those of the model, before penalties and temperature (as vLLM's default "raw_logprobs"). Leaves
// out: which rows need logits at all (sequence.h), when to stop (choice_text.h).

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "caravan/engine/request.h"
#include "caravan/ops/context.h"

namespace caravan::engine {

/// What besides the logits decides a token.
struct SamplingInput {
  const SamplingParams& params;
  std::span<const std::int32_t> prompt;
  std::span<const std::int32_t> generated;
  std::int64_t choice = 0;
};

/// Why a model's best logit (ops::argmax, NaN winning) is of no use, or empty: "the model produced
/// NaN logits".
std::string logit_fault(float best_logit);

class Sampler {
 public:
  /// @param vocab_size      V, width of the rows
  /// @param num_sampleable  ids from here on are padding without a token and are never chosen
  Sampler(const ops::Context& context, std::int64_t vocab_size, std::int64_t num_sampleable);

  std::int64_t num_sampleable() const { return num_sampleable_; }

  /// As logit_fault of the row's best logit.
  std::string row_fault(std::span<const float> logits) const;

  /// The next token: the best one (lowest id on ties) at temperature <= 0, a draw otherwise. Empty
  /// when every token is forbidden.
  ///
  /// In this order: bias, repetition penalty (prompt and output), presence and frequency penalties
  /// (output), forbidden ids, temperature, top_k (ties at the k-th value stay), top_p (smallest set
  /// that leaves a tail of at most 1 - top_p), min_p.
  /// @pre row_fault(logits) is empty.
  std::optional<std::int32_t> choose(std::span<const float> logits, const SamplingInput& input);

  /// The distribution that choose() draws from, [V]; all zero when every token is forbidden.
  std::vector<double> probabilities(std::span<const float> logits, const SamplingInput& input);

  /// Log-probability of `id` and the `num_top` best tokens, best first, ties by id.
  TokenLogprob logprob(std::span<const float> logits, std::int32_t id, std::int64_t num_top);

 private:
  void adjust(std::span<const float> logits, const SamplingInput& input);
  void apply_penalties(const SamplingInput& input);
  void forbid(const SamplingInput& input);
  void weigh(const SamplingParams& params);
  double sum_weights();
  std::int32_t pick(double target) const;
  void keep_only_kept();
  double nth_largest(std::int64_t count);
  void sort_layer(double lower, double upper);
  void keep_top_k(std::int64_t top_k);
  void keep_top_p(const SamplingParams& params);
  void keep_min_p(double min_p, float largest);

  const ops::Context& context_;
  std::int64_t vocab_size_;
  std::int64_t num_sampleable_;
  struct Candidate {
    double value = 0;
    std::int32_t id = 0;
  };

  // Scratch for one row, all of [V] so that a row allocates nothing.
  std::vector<double> adjusted_;    // logits after bias, penalties and forbidden ids (-inf)
  std::size_t best_ = 0;            // id of the largest of these, the lowest one on ties
  std::vector<float> weights_;      // probabilities up to a common factor; 0 when filtered out
  std::vector<double> sums_;        // of the weights before every so many ids
  bool few_ = false;                // whether only kept_ may have weight
  std::vector<std::int32_t> kept_;  // ascending
  std::vector<float> kept_weights_;
  std::vector<std::int32_t> counts_;  // all zero between uses
  std::vector<std::int32_t> order_;
  std::vector<double> top_;
  std::vector<Candidate> layer_;
  std::vector<std::int32_t> head_;
};

}  // namespace caravan::engine
