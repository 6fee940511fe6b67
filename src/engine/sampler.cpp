#include "caravan/engine/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "caravan/engine/random.h"
#include "caravan/engine/sequence.h"
#include "caravan/ops/math.h"

namespace caravan::engine {
namespace {

constexpr double kForbidden = -std::numeric_limits<double>::infinity();
/// How far below the best logit, in units of the temperature, the layers end that top_p sorts one
/// after the other: most distributions need the first few tokens only.
constexpr std::array<double, 5> kLayerDepths{2, 4, 8, 16, std::numeric_limits<double>::infinity()};

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

/// In order of id, so that the sum has one value.
double ordered_sum(std::span<const float> weights) {
  double sum = 0;
  for (const float weight : weights) sum += static_cast<double>(weight);
  return sum;
}

/// First id whose cumulative weight exceeds `target`; the last id with any weight where rounding
/// leaves none.
std::int32_t pick(std::span<const float> weights, double target) {
  double cumulative = 0;
  std::int32_t last = 0;
  for (std::size_t id = 0; id < weights.size(); ++id) {
    if (weights[id] == 0) continue;
    last = static_cast<std::int32_t>(id);
    cumulative += static_cast<double>(weights[id]);
    if (cumulative > target) break;
  }
  return last;
}

}  // namespace

std::string logit_fault(float best_logit) {
  if (std::isnan(best_logit)) {
    return "the model produced NaN logits for this request: its weights or the prompt's "
           "activations "
           "overflow, or the checkpoint is damaged (caravan verify)";
  }
  if (std::isinf(best_logit)) {
    return "the model produced infinite logits for this request: its weights or the prompt's "
           "activations overflow, or the checkpoint is damaged (caravan verify)";
  }
  return {};
}

Sampler::Sampler(const ops::Context& context, std::int64_t vocab_size, std::int64_t num_sampleable)
    : context_(context),
      vocab_size_(vocab_size),
      num_sampleable_(std::min(vocab_size, num_sampleable)) {
  CARAVAN_ASSERT(num_sampleable_ > 0,
                 "a vocabulary of {} ids, {} of them with a token, has nothing "
                 "to sample",
                 vocab_size, num_sampleable);
  const auto size = checked_cast<std::size_t>(vocab_size);
  adjusted_.resize(size);
  weights_.resize(size);
  counts_.assign(size, 0);
  order_.resize(size);
}

std::string Sampler::row_fault(std::span<const float> logits) const {
  float best = -std::numeric_limits<float>::infinity();
  bool any_nan = false;
  for (const float logit : logits) {
    any_nan |= logit != logit;
    best = logit > best ? logit : best;
  }
  return logit_fault(any_nan ? std::numeric_limits<float>::quiet_NaN() : best);
}

void Sampler::adjust(std::span<const float> logits, const SamplingInput& input) {
  CARAVAN_ASSERT(static_cast<std::int64_t>(logits.size()) == vocab_size_,
                 "a row of {} logits for a vocabulary of {}", logits.size(), vocab_size_);
  std::copy(logits.begin(), logits.end(), adjusted_.begin());
  for (const auto& [id, bias] : input.params.logit_bias) {
    if (id >= 0 && id < vocab_size_) adjusted_[at(id)] += bias;
  }
  apply_penalties(input);
  forbid(input);
}

void Sampler::apply_penalties(const SamplingInput& input) {
  const SamplingParams& params = input.params;
  const double repetition = params.repetition_penalty;
  if (repetition != 1.0) {
    const auto penalize = [&](std::int32_t id) {
      if (id >= vocab_size_ || counts_[at(id)]++ > 0) return;  // images are never generated
      double& value = adjusted_[at(id)];
      value = value > 0 ? value / repetition : value * repetition;
    };
    std::for_each(input.prompt.begin(), input.prompt.end(), penalize);
    std::for_each(input.generated.begin(), input.generated.end(), penalize);
    for (const std::int32_t id : input.prompt) {
      if (id < vocab_size_) counts_[at(id)] = 0;
    }
    for (const std::int32_t id : input.generated) counts_[at(id)] = 0;
  }
  if (params.presence_penalty == 0.0 && params.frequency_penalty == 0.0) return;
  for (const std::int32_t id : input.generated) ++counts_[at(id)];
  for (const std::int32_t id : input.generated) {
    if (counts_[at(id)] == 0) continue;
    adjusted_[at(id)] -= params.presence_penalty + params.frequency_penalty * counts_[at(id)];
    counts_[at(id)] = 0;
  }
}

void Sampler::forbid(const SamplingInput& input) {
  std::fill(adjusted_.begin() + num_sampleable_, adjusted_.end(), kForbidden);
  if (!stop_ids_masked(input.params, std::ssize(input.generated))) return;
  for (const std::int32_t id : input.params.stop_ids) {
    if (id >= 0 && id < vocab_size_) adjusted_[at(id)] = kForbidden;
  }
}

std::int64_t Sampler::best() const {
  return std::max_element(adjusted_.begin(), adjusted_.end()) - adjusted_.begin();
}

void Sampler::weigh(const SamplingParams& params) {
  // The maximum is subtracted in double before rounding to float: what has weight is near zero,
  // where float is fine-grained, however small the temperature.
  const double largest = adjusted_[static_cast<std::size_t>(best())];
  for (std::size_t id = 0; id < weights_.size(); ++id) {
    weights_[id] = static_cast<float>((adjusted_[id] - largest) / params.temperature);
  }
  ops::exp_shifted(context_, weights_, 0.0F, weights_);
  const float largest_weight = *std::max_element(weights_.begin(), weights_.end());
  if (params.top_k > 0 && params.top_k < vocab_size_) keep_top_k(params.top_k);
  if (params.top_p < 1.0) keep_top_p(params);
  if (params.min_p > 0.0) keep_min_p(params.min_p, largest_weight);
}

void Sampler::keep_top_k(std::int64_t top_k) {
  std::iota(order_.begin(), order_.end(), 0);
  const auto kth = order_.begin() + (top_k - 1);
  std::nth_element(order_.begin(), kth, order_.end(), [&](std::int32_t a, std::int32_t b) {
    return adjusted_[at(a)] > adjusted_[at(b)];
  });
  const double threshold = adjusted_[at(*kth)];
  for (std::size_t id = 0; id < weights_.size(); ++id) {
    if (adjusted_[id] < threshold) weights_[id] = 0;
  }
}

void Sampler::keep_top_p(const SamplingParams& params) {
  const double total = ordered_sum(weights_);
  const double allowed_tail = (1.0 - params.top_p) * total;
  const double largest = adjusted_[static_cast<std::size_t>(best())];
  const auto better = [&](std::int32_t a, std::int32_t b) {
    return adjusted_[at(a)] != adjusted_[at(b)] ? adjusted_[at(a)] > adjusted_[at(b)] : a < b;
  };
  // Only as much of the descending order is made as the kept head needs: layer after layer below
  // the best. The sum runs along the order, so where layers end does not show.
  double head = 0;
  bool full = false;
  double upper = std::numeric_limits<double>::infinity();
  for (const double depth : kLayerDepths) {
    const double lower = largest - depth * params.temperature;
    layer_.clear();
    for (std::size_t id = 0; id < weights_.size(); ++id) {
      if (adjusted_[id] >= lower && adjusted_[id] < upper && weights_[id] > 0) {
        layer_.push_back(static_cast<std::int32_t>(id));
      }
    }
    upper = lower;
    if (!full) std::sort(layer_.begin(), layer_.end(), better);
    for (const std::int32_t id : layer_) {
      full = full || (head > 0 && total - head <= allowed_tail);
      if (full) {
        weights_[at(id)] = 0;
      } else {
        head += static_cast<double>(weights_[at(id)]);
      }
    }
  }
}

void Sampler::keep_min_p(double min_p, float largest) {
  const double threshold = min_p * static_cast<double>(largest);
  for (float& weight : weights_) {
    if (static_cast<double>(weight) < threshold) weight = 0;
  }
}

std::optional<std::int32_t> Sampler::choose(std::span<const float> logits,
                                            const SamplingInput& input) {
  adjust(logits, input);
  const std::int64_t greedy = best();
  if (adjusted_[static_cast<std::size_t>(greedy)] == kForbidden) return std::nullopt;
  if (input.params.temperature <= 0) return static_cast<std::int32_t>(greedy);
  weigh(input.params);
  const double draw = uniform_draw(
      input.params.seed, {input.params.prompt_index, input.choice, std::ssize(input.generated)});
  return pick(weights_, draw * ordered_sum(weights_));
}

std::vector<double> Sampler::probabilities(std::span<const float> logits,
                                           const SamplingInput& input) {
  std::vector<double> result(weights_.size(), 0.0);
  adjust(logits, input);
  const auto greedy = static_cast<std::size_t>(best());
  if (adjusted_[greedy] == kForbidden) return result;
  if (input.params.temperature <= 0) {
    result[greedy] = 1.0;
    return result;
  }
  weigh(input.params);
  const double total = ordered_sum(weights_);
  std::transform(weights_.begin(), weights_.end(), result.begin(),
                 [&](float weight) { return static_cast<double>(weight) / total; });
  return result;
}

TokenLogprob Sampler::logprob(std::span<const float> logits, std::int32_t id,
                              std::int64_t num_top) {
  const double normalizer = ops::log_sum_exp(context_, logits);
  const auto value = [&](std::int32_t token) {
    return static_cast<float>(static_cast<double>(logits[at(token)]) - normalizer);
  };
  TokenLogprob result{id, value(id), {}};
  const std::int64_t count = std::min(num_top, num_sampleable_);
  if (count <= 0) return result;
  std::iota(order_.begin(), order_.end(), 0);
  std::vector<std::int32_t> top(static_cast<std::size_t>(count));
  std::partial_sort_copy(order_.begin(), order_.begin() + num_sampleable_, top.begin(), top.end(),
                         [&](std::int32_t a, std::int32_t b) {
                           return logits[at(a)] != logits[at(b)] ? logits[at(a)] > logits[at(b)]
                                                                 : a < b;
                         });
  result.top.reserve(top.size());
  for (const std::int32_t token : top) result.top.emplace_back(token, value(token));
  return result;
}

}  // namespace caravan::engine
