#include "caravan/ops/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "support/reference_ops.h"

namespace caravan::ops {
namespace {

using testing::Random;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> exp_in(Isa isa, const std::vector<float>& x, float shift) {
  ThreadTeam team(1);
  std::vector<float> y(x.size());
  exp_shifted(Context(team, isa), x, shift, y);
  return y;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(ExpShifted, IsWithinTwoUlpAndTheSameInEveryBuild) {
  std::vector<float> x;
  for (float value = -88.0F; value < 89.0F; value += 1.0F / 1024) x.push_back(value);
  Random random(31);
  for (int i = 0; i < 200000; ++i) {
    // All exponents alike.
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  }
  const std::vector<float> y = exp_in(Isa::kGeneric, x, 0);
  for (const Isa isa : testing::supported_isas()) {
    std::vector<float> numbers;
    for (const float value : x) numbers.push_back(std::isnan(value) ? 0.0F : value);
    EXPECT_TRUE(same(exp_in(isa, numbers, 0), exp_in(Isa::kGeneric, numbers, 0))) << isa_name(isa);
    EXPECT_TRUE(same(exp_in(isa, numbers, 3.25F), exp_in(Isa::kGeneric, numbers, 3.25F)))
        << isa_name(isa);
  }
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = std::exp(static_cast<double>(x[i]));
    if (std::isnan(x[i])) {
      ASSERT_TRUE(std::isnan(y[i]));
    } else if (expected < static_cast<double>(std::numeric_limits<float>::min())) {
      ASSERT_EQ(y[i], 0.0F) << x[i];
    } else if (expected > static_cast<double>(std::numeric_limits<float>::max())) {
      ASSERT_EQ(y[i], kInfinity) << x[i];
    } else {
      const auto rounded = static_cast<float>(expected);
      const double ulp = static_cast<double>(rounded) - std::nextafter(rounded, 0.0F);
      worst = std::max(worst, std::fabs(y[i] - expected) / ulp);
    }
  }
  EXPECT_LE(worst, 2.0);
  RecordProperty("worst_ulp", std::to_string(worst));
}

TEST(ExpShifted, HasExactLimits) {
  const float lowest = -0x1.5d589ep+6F;
  const float highest = 0x1.62e42ep+6F;
  const std::vector<float> x{0.0F,          -0.0F,
                             -kInfinity,    kInfinity,
                             std::nanf(""), -1e30F,
                             lowest,        std::nextafter(lowest, -100.0F),
                             highest,       std::nextafter(highest, 100.0F)};
  for (const Isa isa : testing::supported_isas()) {
    const std::vector<float> y = exp_in(isa, x, 0);
    EXPECT_EQ(y[0], 1.0F);
    EXPECT_EQ(y[1], 1.0F);
    EXPECT_EQ(y[2], 0.0F);
    EXPECT_EQ(y[3], kInfinity);
    EXPECT_TRUE(std::isnan(y[4]));
    EXPECT_EQ(y[5], 0.0F);
    EXPECT_FALSE(std::signbit(y[5]));
    EXPECT_GT(y[6], 0.0F);
    EXPECT_EQ(y[7], 0.0F);
    EXPECT_TRUE(std::isfinite(y[8]));
    EXPECT_EQ(y[9], kInfinity);
  }
}

TEST(ExpShifted, WorksInPlaceAndForEveryLength) {
  ThreadTeam team(1);
  for (const Isa isa : testing::supported_isas()) {
    const Context context(team, isa);
    for (std::size_t count = 0; count < 40; ++count) {
      std::vector<float> row(count + 1, 0.5F);
      exp_shifted(context, {row.data(), count}, 0.5F, {row.data(), count});
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(row[i], 1.0F);
      ASSERT_EQ(row[count], 0.5F);
    }
  }
}

TEST(LogSumExp, AgreesWithDoubleAndBetweenBuilds) {
  Random random(32);
  ThreadTeam team(1);
  std::normal_distribution<float> normal(0, 6);
  for (const std::size_t count : {1U, 2U, 15U, 16U, 17U, 1000U, 49152U}) {
    std::vector<float> row(count);
    for (float& value : row) value = normal(random);
    if (count > 3) row[2] = -kInfinity;
    double sum = 0;
    for (const float value : row) sum += std::exp(static_cast<double>(value));
    const double first = log_sum_exp(Context(team, Isa::kGeneric), row);
    EXPECT_NEAR(first, std::log(sum), 2e-6) << count;
    for (const Isa isa : testing::supported_isas()) {
      EXPECT_EQ(std::bit_cast<std::uint64_t>(log_sum_exp(Context(team, isa), row)),
                std::bit_cast<std::uint64_t>(first))
          << isa_name(isa) << ", " << count;
    }
  }
}

TEST(LogSumExp, IsExactAtItsLimits) {
  ThreadTeam team(1);
  for (const Isa isa : testing::supported_isas()) {
    const Context context(team, isa);
    EXPECT_EQ(log_sum_exp(context, std::vector<float>{}), -kInfinity);
    EXPECT_EQ(log_sum_exp(context, std::vector<float>(20, -kInfinity)), -kInfinity);
    EXPECT_EQ(log_sum_exp(context, std::vector<float>{-3.5F}), -3.5);
    EXPECT_EQ(log_sum_exp(context, std::vector<float>{-3.5F, -kInfinity}), -3.5);
    EXPECT_NEAR(log_sum_exp(context, std::vector<float>(49152, 1000.0F)), 1000 + std::log(49152.0),
                1e-12);
    EXPECT_TRUE(std::isnan(log_sum_exp(context, std::vector<float>{1.0F, std::nanf("")})));
    EXPECT_TRUE(std::isnan(log_sum_exp(context, std::vector<float>{std::nanf("")})));
  }
}

}  // namespace
}  // namespace caravan::ops
