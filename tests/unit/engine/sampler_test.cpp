#include "caravan/engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "caravan/core/thread_team.h"
#include "caravan/engine/sequence.h"

namespace caravan::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class SamplerTest : public testing::Test {
 protected:
  static Sampler make(std::int64_t vocab_size, std::int64_t num_sampleable) {
    static ThreadTeam team(1);
    static const ops::Context context(team, ops::detect_isa());
    return Sampler(context, vocab_size, num_sampleable);
  }
  static Sampler make(std::int64_t vocab_size) { return make(vocab_size, vocab_size); }

  /// A row with a few close values on top and a long tail.
  static std::vector<float> some_logits(std::size_t size) {
    std::vector<float> logits(size);
    for (std::size_t i = 0; i < size; ++i) {
      logits[i] = 4.0F * std::sin(static_cast<float>(i) * 1.7F) - 0.01F * static_cast<float>(i);
    }
    return logits;
  }
};

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

// Cases and probabilities of an independent float64 implementation (tests/data/sampling).
TEST_F(SamplerTest, GivesTheProbabilitiesOfTheOracle) {
  std::ifstream file(CARAVAN_TEST_DATA "/sampling/cases.json");
  ASSERT_TRUE(file) << "tests/data/sampling/cases.json is missing";
  const nlohmann::json data = nlohmann::json::parse(file);
  ASSERT_GE(data["cases"].size(), 200U);
  for (const nlohmann::json& test_case : data["cases"]) {
    SCOPED_TRACE(test_case["id"].get<std::string>());
    const auto logits =
        data["logits"][test_case["logits"].get<std::string>()].get<std::vector<float>>();
    SamplingParams params;
    params.temperature = test_case.value("temperature", 1.0);
    params.top_k = test_case.value("top_k", std::int64_t{0});
    params.top_p = test_case.value("top_p", 1.0);
    params.min_p = test_case.value("min_p", 0.0);
    params.repetition_penalty = test_case.value("repetition_penalty", 1.0);
    params.presence_penalty = test_case.value("presence_penalty", 0.0);
    params.frequency_penalty = test_case.value("frequency_penalty", 0.0);
    if (test_case.contains("logit_bias")) {
      for (const auto& [id, bias] : test_case["logit_bias"].items()) {
        params.logit_bias[std::stoi(id)] = bias.get<double>();
      }
    }
    const auto prompt = test_case.value("context", std::vector<std::int32_t>{});
    const auto generated = test_case.value("generated", std::vector<std::int32_t>{});
    std::vector<double> expected(logits.size(), 0.0);
    const auto p = test_case["p"].get<std::vector<double>>();
    for (std::size_t i = 0; i < p.size(); ++i) {
      expected[test_case.contains("ids") ? test_case["ids"][i].get<std::size_t>() : i] = p[i];
    }
    Sampler sampler = make(std::ssize(logits));
    const auto found = sampler.probabilities(logits, {params, prompt, generated, 0});
    std::int64_t nonzero = 0;
    for (std::size_t id = 0; id < logits.size(); ++id) {
      EXPECT_NEAR(found[id], expected[id], 1e-6) << "id " << id;
      if (found[id] > 0) ++nonzero;
    }
    // The filters keep the same tokens; below 1e-38 a weight may vanish.
    EXPECT_LE(nonzero, test_case["nonzero"].get<std::int64_t>());
    EXPECT_GE(nonzero, std::ssize(p));
  }
}

// Chi-square of 20000 draws at fixed seeds: 0.1 % quantile at 5 degrees of freedom is 20.5.
TEST_F(SamplerTest, DrawsWithTheGivenProbabilities) {
  const std::vector<float> logits = some_logits(300);
  SamplingParams params;
  params.temperature = 1.3;
  params.top_k = 6;
  Sampler sampler = make(300);
  const auto p = sampler.probabilities(logits, {params, {}, {}, 0});
  std::map<std::int32_t, std::int64_t> hits;
  constexpr std::int64_t kDraws = 20000;
  for (std::int64_t i = 0; i < kDraws; ++i) {
    params.seed = static_cast<std::uint64_t>(i);
    ++hits[sampler.choose(logits, {params, {}, {}, 0}).value()];
  }
  ASSERT_EQ(hits.size(), 6U);
  double chi_square = 0;
  for (const auto& [id, count] : hits) {
    ASSERT_GT(p[static_cast<std::size_t>(id)], 0) << "id " << id << " was filtered out";
    const double expected = p[static_cast<std::size_t>(id)] * static_cast<double>(kDraws);
    const double difference = static_cast<double>(count) - expected;
    chi_square += difference * difference / expected;
  }
  EXPECT_LT(chi_square, 20.5);
}

TEST_F(SamplerTest, DrawsDependOnSeedPromptChoiceAndPositionOnly) {
  const std::vector<float> logits(1000, 0.0F);
  SamplingParams params;
  params.seed = 11;
  Sampler sampler = make(1000);
  const std::vector<std::int32_t> one{1};
  const std::vector<std::int32_t> other{2};
  const auto draw = [&](std::uint64_t seed, const std::vector<std::int32_t>& generated,
                        std::int64_t choice) {
    params.seed = seed;
    return sampler.choose(logits, {params, {}, generated, choice}).value();
  };
  const std::int32_t base = draw(11, one, 0);
  EXPECT_EQ(draw(11, other, 0), base) << "which tokens came before does not matter";
  EXPECT_NE(draw(12, one, 0), base);
  EXPECT_NE(draw(11, one, 1), base);
  EXPECT_NE(draw(11, {}, 0), base);
  params.prompt_index = 1;
  EXPECT_NE(draw(11, one, 0), base);
  params.prompt_index = 0;
  EXPECT_EQ(draw(11, one, 0), base) << "earlier draws leave nothing behind";
}

TEST_F(SamplerTest, GreedyTakesTheLowestIdOnTies) {
  std::vector<float> logits(50, -1.0F);
  logits[31] = logits[12] = logits[40] = 3.0F;
  Sampler sampler = make(50);
  EXPECT_EQ(sampler.choose(logits, {greedy(), {}, {}, 0}), 12);
  std::vector<float> zeros{-0.0F, 0.0F, -1.0F};
  Sampler small = make(3);
  EXPECT_EQ(small.choose(zeros, {greedy(), {}, {}, 0}), 0) << "zeros of both signs are equal";
}

TEST_F(SamplerTest, NegativeTemperatureIsGreedy) {
  const std::vector<float> logits{0.0F, 2.0F, 1.0F};
  SamplingParams params;
  params.temperature = -1;
  Sampler sampler = make(3);
  EXPECT_EQ(sampler.choose(logits, {params, {}, {}, 0}), 1);
}

TEST_F(SamplerTest, TinyTemperatureDrawsTheBest) {
  const std::vector<float> logits{1.0F, 1.0001F, -3.0F};
  SamplingParams params;
  params.temperature = 1e-300;
  Sampler sampler = make(3);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    params.seed = seed;
    EXPECT_EQ(sampler.choose(logits, {params, {}, {}, 0}), 1);
  }
}

TEST_F(SamplerTest, TopPIsTheSameHoweverMuchMustBeSorted) {
  // A flat row: nearly everything is kept, so that several rounds of sorting are needed.
  std::vector<float> logits(5000);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    logits[i] = 0.001F * static_cast<float>((i * 7919) % 5000);
  }
  SamplingParams params;
  params.top_p = 0.7;
  Sampler sampler = make(5000);
  const auto p = sampler.probabilities(logits, {params, {}, {}, 0});
  // By definition: descending, kept while the mass from this token on exceeds 0.3.
  std::vector<double> all(5000);
  double total = 0;
  for (std::size_t i = 0; i < all.size(); ++i) total += std::exp(0.001 * static_cast<double>(i));
  double head = 0;
  std::int64_t expected = 0;
  for (std::size_t rank = 5000; rank-- > 0 && total - head > 0.3 * total; ++expected) {
    head += std::exp(0.001 * static_cast<double>(rank));
  }
  EXPECT_NEAR(
      static_cast<double>(std::count_if(p.begin(), p.end(), [](double x) { return x > 0; })),
      static_cast<double>(expected), 1.0);
  EXPECT_GT(
      p[static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin())],
      0);
}

TEST_F(SamplerTest, MasksStopIdsBeforeMinTokens) {
  const std::vector<float> logits{0.0F, 5.0F, 1.0F, 4.0F};
  SamplingParams params = greedy();
  params.stop_ids = {1, 3, 77, -1};
  params.min_tokens = 2;
  Sampler sampler = make(4);
  const std::vector<std::int32_t> one{0};
  const std::vector<std::int32_t> two{0, 0};
  EXPECT_EQ(sampler.choose(logits, {params, {}, one, 0}), 2);
  EXPECT_EQ(sampler.choose(logits, {params, {}, two, 0}), 1);
}

TEST_F(SamplerTest, NeverChoosesPaddingOfTheVocabulary) {
  std::vector<float> logits = some_logits(20);
  logits[18] = 50.0F;
  SamplingParams params;
  params.temperature = 5;
  Sampler sampler = make(20, 17);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    params.seed = seed;
    EXPECT_LT(sampler.choose(logits, {params, {}, {}, 0}).value(), 17);
  }
  EXPECT_LT(sampler.choose(logits, {greedy(), {}, {}, 0}).value(), 17);
  for (const auto& [id, value] : sampler.logprob(logits, 0, 20).top) EXPECT_LT(id, 17);
}

TEST_F(SamplerTest, SaysWhenEverythingIsForbidden) {
  const std::vector<float> logits{1.0F, 2.0F};
  SamplingParams params = greedy();
  params.stop_ids = {0, 1};
  params.min_tokens = 1;
  Sampler sampler = make(2);
  EXPECT_EQ(sampler.choose(logits, {params, {}, {}, 0}), std::nullopt);
  params.temperature = 1;
  EXPECT_EQ(sampler.choose(logits, {params, {}, {}, 0}), std::nullopt);
}

TEST_F(SamplerTest, PenaltiesLeaveNoTrace) {
  const std::vector<float> logits = some_logits(64);
  SamplingParams params;
  const SamplingParams plain;
  params.repetition_penalty = 1.3;
  params.presence_penalty = 0.5;
  params.frequency_penalty = 0.25;
  const std::vector<std::int32_t> prompt{1, 2, 2, 3};
  const std::vector<std::int32_t> generated{3, 4, 4, 4};
  Sampler sampler = make(64);
  const auto before = sampler.probabilities(logits, {plain, prompt, generated, 0});
  const auto penalized = sampler.probabilities(logits, {params, prompt, generated, 0});
  EXPECT_EQ(sampler.probabilities(logits, {plain, prompt, generated, 0}), before);
  EXPECT_EQ(sampler.probabilities(logits, {params, prompt, generated, 0}), penalized);
  EXPECT_NE(before, penalized);
}

TEST_F(SamplerTest, LogprobsAreThoseOfTheModel) {
  const std::vector<float> logits{1.0F, 3.0F, -2.0F, 3.0F, 0.5F};
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  Sampler sampler = make(5);
  const TokenLogprob result = sampler.logprob(logits, 4, 3);
  EXPECT_EQ(result.id, 4);
  EXPECT_NEAR(result.logprob, 0.5 - std::log(sum), 1e-6);
  ASSERT_EQ(result.top.size(), 3U);
  EXPECT_EQ(result.top[0].first, 1) << "ties by id";
  EXPECT_EQ(result.top[1].first, 3);
  EXPECT_EQ(result.top[2].first, 0);
  EXPECT_NEAR(result.top[2].second, 1.0 - std::log(sum), 1e-6);
  EXPECT_TRUE(sampler.logprob(logits, 4, 0).top.empty());
  EXPECT_EQ(sampler.logprob(logits, 4, 100).top.size(), 5U);
}

TEST_F(SamplerTest, SeesUnusableRows) {
  Sampler sampler = make(3);
  EXPECT_EQ(sampler.row_fault(std::vector<float>{1.0F, -kInfinity, 0.0F}), "");
  EXPECT_NE(sampler.row_fault(std::vector<float>{1.0F, kNan, 0.0F}).find("NaN"), std::string::npos);
  EXPECT_NE(sampler.row_fault(std::vector<float>{1.0F, kInfinity, 0.0F}).find("infinite"),
            std::string::npos);
  EXPECT_NE(sampler.row_fault(std::vector<float>(3, -kInfinity)).find("infinite"),
            std::string::npos);
  EXPECT_EQ(sampler.row_fault(std::vector<float>{kInfinity, kNan, 0.0F}), logit_fault(kNan));
}

TEST(ArgmaxSuffices, OnlyForPlainGreedy) {
  EXPECT_TRUE(argmax_suffices(greedy(), 0));
  const auto needs_logits = [](auto change) {
    SamplingParams params = greedy();
    change(params);
    return !argmax_suffices(params, 0);
  };
  EXPECT_TRUE(needs_logits([](SamplingParams& p) { p.temperature = 0.5; }));
  EXPECT_TRUE(needs_logits([](SamplingParams& p) { p.logprobs = true; }));
  EXPECT_TRUE(needs_logits([](SamplingParams& p) { p.logit_bias[3] = 1; }));
  EXPECT_TRUE(needs_logits([](SamplingParams& p) { p.repetition_penalty = 1.1; }));
  EXPECT_TRUE(needs_logits([](SamplingParams& p) { p.presence_penalty = 1.1; }));
  EXPECT_TRUE(needs_logits([](SamplingParams& p) { p.frequency_penalty = 1.1; }));
  SamplingParams params = greedy();
  params.min_tokens = 2;
  EXPECT_TRUE(argmax_suffices(params, 0)) << "no stop ids, nothing to mask";
  params.stop_ids = {4};
  EXPECT_FALSE(argmax_suffices(params, 1));
  EXPECT_TRUE(argmax_suffices(params, 2));
}

}  // namespace
}  // namespace caravan::engine
