#include "caravan/engine/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
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
constexpr std::array<double, 8> kLayerDepths{2,  4,  6,  8,
                                             10, 13, 20, std::numeric_limits<double>::infinity()};
/// Ids between two sums that pick() may begin at.
constexpr std::size_t kSumStride = 256;

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

/// As std::max_element, in chains that do not wait for each other. Not for NaN.
std::size_t first_largest(std::span<const double> values) {
  constexpr std::size_t kChains = 8;
  std::array<double, kChains> largest{};
  largest.fill(-std::numeric_limits<double>::infinity());
  std::size_t begin = 0;
  for (; begin + kChains <= values.size(); begin += kChains) {
    for (std::size_t chain = 0; chain < kChains; ++chain) {
      const double value = values[begin + chain];
      largest[chain] = value > largest[chain] ? value : largest[chain];
    }
  }
  for (; begin < values.size(); ++begin) largest[0] = std::max(largest[0], values[begin]);
  const double best = *std::max_element(largest.begin(), largest.end());
  const auto found = std::find(values.begin(), values.end(), best);
  return found == values.end() ? 0 : static_cast<std::size_t>(found - values.begin());
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
  sums_.resize(size / kSumStride + 1);
  top_.reserve(size);
  layer_.reserve(size);
  head_.reserve(size);
  kept_.reserve(size);
  kept_weights_.reserve(size);
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
  best_ = first_largest(adjusted_);
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

void Sampler::weigh(const SamplingParams& params) {
  // The maximum is subtracted in double before rounding to float: what has weight is near zero,
  // where float is fine-grained, however small the temperature.
  const double largest = adjusted_[best_];
  const double temperature = params.temperature;
  if (temperature == 1.0) {
    for (std::size_t id = 0; id < weights_.size(); ++id) {
      weights_[id] = static_cast<float>(adjusted_[id] - largest);
    }
  } else {
    for (std::size_t id = 0; id < weights_.size(); ++id) {
      weights_[id] = static_cast<float>((adjusted_[id] - largest) / temperature);
    }
  }
  ops::exp_shifted(context_, weights_, 0.0F, weights_);
  const float largest_weight =
      params.min_p > 0.0 ? *std::max_element(weights_.begin(), weights_.end()) : 0.0F;
  few_ = false;
  if (params.top_k > 0 && params.top_k < vocab_size_) keep_top_k(params.top_k);
  if (params.top_p < 1.0) keep_top_p(params);
  if (params.min_p > 0.0) keep_min_p(params.min_p, largest_weight);
}

/// The sum of all weights in order of id, so that it has one value; ids without weight add nothing.
double Sampler::sum_weights() {
  double sum = 0;
  if (few_) {
    for (const std::int32_t id : kept_) sum += static_cast<double>(weights_[at(id)]);
    return sum;
  }
  for (std::size_t begin = 0, stride = 0; begin < weights_.size(); begin += kSumStride, ++stride) {
    sums_[stride] = sum;
    const std::size_t end = std::min(begin + kSumStride, weights_.size());
    for (std::size_t id = begin; id < end; ++id) sum += static_cast<double>(weights_[id]);
  }
  return sum;
}

/// First id whose cumulative weight exceeds `target`; the last id with any weight where rounding
/// leaves none. @pre sum_weights() was called.
std::int32_t Sampler::pick(double target) const {
  double cumulative = 0;
  std::int32_t last = 0;
  const auto reaches = [&](std::int32_t id) {
    const float weight = weights_[at(id)];
    if (weight == 0) return false;
    last = id;
    cumulative += static_cast<double>(weight);
    return cumulative > target;
  };
  if (few_) {
    static_cast<void>(std::any_of(kept_.begin(), kept_.end(), reaches));
    return last;
  }
  // Sums never fall, so that all ids before the last stride that begins at or below the target are
  // passed by. One stride earlier where that one may be without weight.
  const std::size_t strides = (weights_.size() + kSumStride - 1) / kSumStride;
  const auto sums_end = sums_.begin() + static_cast<std::ptrdiff_t>(strides);
  const auto after = std::lower_bound(sums_.begin(), sums_end, target);
  std::size_t stride =
      after == sums_.begin() ? 0 : static_cast<std::size_t>(after - sums_.begin() - 1);
  cumulative = sums_[stride];
  const auto size = static_cast<std::int32_t>(weights_.size());
  for (auto id = static_cast<std::int32_t>(stride * kSumStride); id < size; ++id) {
    if (reaches(id)) break;
  }
  return last;
}

/// From here on only kept_, in any order, has weight.
void Sampler::keep_only_kept() {
  kept_weights_.clear();
  for (const std::int32_t id : kept_) kept_weights_.push_back(weights_[at(id)]);
  std::fill(weights_.begin(), weights_.end(), 0.0F);
  for (std::size_t i = 0; i < kept_.size(); ++i) weights_[at(kept_[i])] = kept_weights_[i];
  std::sort(kept_.begin(), kept_.end());
  few_ = true;
}

/// The `count`-th largest of adjusted_. Few are found among many in one pass over a small heap.
double Sampler::nth_largest(std::int64_t count) {
  top_.assign(adjusted_.begin(), adjusted_.begin() + count);
  std::make_heap(top_.begin(), top_.end(), std::greater<>());
  for (auto id = static_cast<std::size_t>(count); id < adjusted_.size(); ++id) {
    if (adjusted_[id] <= top_.front()) continue;
    std::pop_heap(top_.begin(), top_.end(), std::greater<>());
    top_.back() = adjusted_[id];
    std::push_heap(top_.begin(), top_.end(), std::greater<>());
  }
  return top_.front();
}

void Sampler::keep_top_k(std::int64_t top_k) {
  const double threshold = nth_largest(top_k);
  kept_.clear();
  for (std::size_t id = 0; id < weights_.size(); ++id) {
    if (adjusted_[id] >= threshold) kept_.push_back(static_cast<std::int32_t>(id));
  }
  keep_only_kept();
}

/// Candidates of top_p in descending order of their logits, equal ones by id.
void Sampler::sort_layer(double lower, double upper) {
  layer_.clear();
  const auto consider = [&](std::int32_t id) {
    const double value = adjusted_[at(id)];
    if (value >= lower && value < upper && weights_[at(id)] > 0) layer_.push_back({value, id});
  };
  if (few_) {
    std::for_each(kept_.begin(), kept_.end(), consider);
  } else {
    const auto size = static_cast<std::int32_t>(weights_.size());
    for (std::int32_t id = 0; id < size; ++id) consider(id);
  }
  std::sort(layer_.begin(), layer_.end(), [](const Candidate& a, const Candidate& b) {
    return a.value != b.value ? a.value > b.value : a.id < b.id;
  });
}

void Sampler::keep_top_p(const SamplingParams& params) {
  const double total = sum_weights();
  const double allowed_tail = (1.0 - params.top_p) * total;
  const double largest = adjusted_[best_];
  // Only as much of the descending order is made as the kept head needs: layer after layer below
  // the best. The sum runs along the order, so where layers end does not show.
  double head = 0;
  bool full = false;
  double upper = std::numeric_limits<double>::infinity();
  head_.clear();
  for (const double depth : kLayerDepths) {
    const double lower = largest - depth * params.temperature;
    sort_layer(lower, upper);
    upper = lower;
    for (const Candidate& candidate : layer_) {
      full = head > 0 && total - head <= allowed_tail;
      if (full) break;
      head += static_cast<double>(weights_[at(candidate.id)]);
      head_.push_back(candidate.id);
    }
    if (full) break;
  }
  kept_.swap(head_);
  keep_only_kept();
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
  if (adjusted_[best_] == kForbidden) return std::nullopt;
  if (input.params.temperature <= 0) return static_cast<std::int32_t>(best_);
  weigh(input.params);
  const double draw = uniform_draw(
      input.params.seed, {input.params.prompt_index, input.choice, std::ssize(input.generated)});
  return pick(draw * sum_weights());
}

std::vector<double> Sampler::probabilities(std::span<const float> logits,
                                           const SamplingInput& input) {
  std::vector<double> result(weights_.size(), 0.0);
  adjust(logits, input);
  if (adjusted_[best_] == kForbidden) return result;
  if (input.params.temperature <= 0) {
    result[best_] = 1.0;
    return result;
  }
  weigh(input.params);
  const double total = sum_weights();
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
