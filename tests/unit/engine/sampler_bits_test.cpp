// The sampler against its definition in a few plain loops: equal to the last bit, and without
// memory of its own for each row.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "caravan/core/thread_team.h"
#include "caravan/engine/random.h"
#include "caravan/engine/sampler.h"
#include "caravan/ops/math.h"
#include "support/allocation_counter.h"
#include "support/small_random.h"

namespace caravan::engine {
namespace {

class SamplerBitsTest : public testing::Test {
 protected:
  /// Weights of all ids, those that are filtered out 0, as Sampler::choose says.
  std::vector<float> weights(const std::vector<float>& logits, const SamplingParams& params) {
    std::vector<double> values(logits.begin(), logits.end());
    const double largest = *std::max_element(values.begin(), values.end());
    std::vector<float> result(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      result[i] = static_cast<float>((values[i] - largest) / params.temperature);
    }
    ops::exp_shifted(context_, result, 0.0F, result);
    const float largest_weight = *std::max_element(result.begin(), result.end());
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
    if (params.top_k > 0 && params.top_k < std::ssize(values)) {
      const double threshold = values[order[static_cast<std::size_t>(params.top_k - 1)]];
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (values[i] < threshold) result[i] = 0;
      }
    }
    if (params.top_p < 1) {
      const double total = sum(result);
      double head = 0;
      for (const std::size_t i : order) {
        if (head > 0 && total - head <= (1.0 - params.top_p) * total) {
          result[i] = 0;
        } else {
          head += static_cast<double>(result[i]);
        }
      }
    }
    for (float& weight : result) {
      if (static_cast<double>(weight) < params.min_p * static_cast<double>(largest_weight)) {
        weight = 0;
      }
    }
    return result;
  }
  static double sum(const std::vector<float>& weights) {
    double total = 0;
    for (const float weight : weights) total += static_cast<double>(weight);
    return total;
  }
  /// The first id whose cumulative weight exceeds the drawn one.
  static std::int32_t draw(const std::vector<float>& weights, const SamplingParams& params) {
    const double target = uniform_draw(params.seed, {0, 0, 0}) * sum(weights);
    double cumulative = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      cumulative += static_cast<double>(weights[i]);
      if (weights[i] > 0 && cumulative > target) return static_cast<std::int32_t>(i);
    }
    return -1;
  }

  ThreadTeam team_{1};
  ops::Context context_{team_, ops::detect_isa()};
};

/// Rows with ties, with ids that cannot be, with few and with many likely ids.
std::vector<float> make_row(std::int64_t size, int kind, test::SmallRandom& random) {
  std::vector<float> row(static_cast<std::size_t>(size));
  for (float& logit : row) {
    const auto step = static_cast<float>(random.below(2000));
    logit = kind == 0   ? step * 0.001F
            : kind == 1 ? step * 0.02F
                        : static_cast<float>(random.below(6));
  }
  if (size > 4) row[2] = -std::numeric_limits<float>::infinity();
  return row;
}

std::vector<SamplingParams> all_params() {
  std::vector<SamplingParams> all;
  for (const double temperature : {0.1, 0.7, 1.0, 2.5}) {
    for (const std::int64_t top_k : {0, 1, 40, 100000}) {
      for (const double top_p : {1.0, 0.95, 0.4, 1e-9}) {
        for (const double min_p : {0.0, 0.05}) {
          SamplingParams params;
          params.temperature = temperature;
          params.top_k = top_k;
          params.top_p = top_p;
          params.min_p = min_p;
          all.push_back(params);
        }
      }
    }
  }
  return all;
}

TEST_F(SamplerBitsTest, ChoosesByTheDefinition) {
  test::SmallRandom random(5);
  for (const std::int64_t size : {1, 5, 255, 256, 257, 1100}) {
    Sampler sampler(context_, size, size);
    for (int kind = 0; kind < 3; ++kind) {
      const std::vector<float> row = make_row(size, kind, random);
      for (SamplingParams params : all_params()) {
        const std::vector<float> expected = weights(row, params);
        const double total = sum(expected);
        const auto found = sampler.probabilities(row, {params, {}, {}, 0});
        for (std::size_t i = 0; i < expected.size(); ++i) {
          ASSERT_EQ(found[i], static_cast<double>(expected[i]) / total)
              << "id " << i << " of " << size << ", kind " << kind << ", temperature "
              << params.temperature << ", top_k " << params.top_k << ", top_p " << params.top_p
              << ", min_p " << params.min_p;
        }
        for (params.seed = 0; params.seed < 5; ++params.seed) {
          ASSERT_EQ(sampler.choose(row, {params, {}, {}, 0}), draw(expected, params));
        }
      }
    }
  }
}

TEST_F(SamplerBitsTest, AllocatesNothing) {
  constexpr std::int64_t kSize = 1100;
  test::SmallRandom random(6);
  Sampler sampler(context_, kSize, kSize);
  const std::vector<SamplingParams> all = all_params();
  const std::vector<float> row = make_row(kSize, 0, random);
  const std::vector<std::int32_t> known{1, 2, 3};
  const std::int64_t before = test::allocation_count();
  std::int64_t chosen = 0;
  for (const SamplingParams& params : all) {
    chosen += sampler.choose(row, {params, known, known, 0}).has_value() ? 1 : 0;
  }
  EXPECT_EQ(test::allocation_count() - before, 0);
  EXPECT_EQ(chosen, std::ssize(all));
}

}  // namespace
}  // namespace caravan::engine
