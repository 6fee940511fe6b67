#include "caravan/ops/vision_rows.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "caravan/core/error.h"
#include "caravan/ops/elementwise.h"
#include "support/expect_error.h"
#include "support/reference_ops.h"

namespace caravan::ops {
namespace {

using testing::Random;
using testing::random_rows;
using testing::same_bits;
using testing::same_everywhere;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

at::Tensor random_vector(Random& random, std::int64_t width) {
  return random_rows(random, 1, width).contiguous().view({width});
}

TEST(LayerNorm, CentresScalesAndShifts) {
  Random random(51);
  for (const std::int64_t width : {1, 5, 16, 31, 80, 1280}) {
    at::Tensor x = random_rows(random, 40, width, 3);
    x.narrow(0, 0, 20).add_(5);
    const at::Tensor weight = random_vector(random, width);
    const at::Tensor bias = random_vector(random, width);
    const at::Tensor y = same_everywhere([&](const Context& context) {
      at::Tensor result = at::full({40, width}, std::nan(""), at::kFloat);
      layer_norm(context, x, weight, bias, 1e-5F, result);
      return result;
    });
    for (std::int64_t n = 0; n < 40; ++n) {
      const float* const row = x.const_data_ptr<float>() + n * x.stride(0);
      double mean = 0;
      for (std::int64_t k = 0; k < width; ++k) mean += static_cast<double>(row[k]);
      mean /= static_cast<double>(width);
      double variance = 0;
      for (std::int64_t k = 0; k < width; ++k) variance += std::pow(row[k] - mean, 2);
      const double factor = 1 / std::sqrt(variance / static_cast<double>(width) + 1e-5);
      for (std::int64_t k = 0; k < width; k += 3) {
        const double expected =
            (row[k] - mean) * factor * weight[k].item<double>() + bias[k].item<double>();
        ASSERT_NEAR(y[n][k].item<float>(), expected, 4e-6 * (1 + std::fabs(expected)))
            << width << " columns, row " << n;
      }
    }
    const at::Tensor in_place = same_everywhere([&](const Context& context) {
      at::Tensor result = x.clone();
      layer_norm(context, result, weight, bias, 1e-5F, result);
      return result;
    });
    EXPECT_TRUE(same_bits(in_place, y));
  }
}

TEST(LayerNorm, GivesTheBiasForAConstantRow) {
  const at::Tensor bias = at::full({20}, 0.75F, at::kFloat);
  const at::Tensor y = same_everywhere([&](const Context& context) {
    at::Tensor x = at::full({2, 20}, 0.0F, at::kFloat);
    layer_norm(context, x, at::full({20}, 3.0F, at::kFloat), bias, 1e-5F, x);
    return x;
  });
  EXPECT_TRUE(same_bits(y[1], bias));
}

TEST(RmsNormHeads, NormalisesEachHeadByItself) {
  Random random(52);
  for (const std::int64_t d : {6, 16, 128}) {
    const at::Tensor x = random_rows(random, 11, 3 * d, 2);
    const at::Tensor weight = random_vector(random, d);
    const at::Tensor y = same_everywhere([&](const Context& context) {
      at::Tensor result = x.clone();
      rms_norm_heads(context, result, weight, 1e-5F);
      return result;
    });
    for (std::int64_t head = 0; head < 3; ++head) {
      const at::Tensor alone = same_everywhere([&](const Context& context) {
        at::Tensor result = at::empty({11, d}, at::kFloat);
        rms_norm(context, x.narrow(1, head * d, d), weight, 1e-5F, result);
        return result;
      });
      EXPECT_TRUE(same_bits(y.narrow(1, head * d, d), alone)) << "head " << head;
    }
  }
}

TEST(Gelu, IsWithinSixUlpAndTheSameInEveryBuild) {
  std::vector<float> values;
  for (float x = -13.5F; x < 13.5F; x += 1.0F / 4096) values.push_back(x);
  for (float x = 1; x > 1e-30F; x *= 0.7F) values.insert(values.end(), {x, -x});
  const auto count = static_cast<std::int64_t>(values.size());
  const at::Tensor y = same_everywhere([&](const Context& context) {
    at::Tensor x = at::empty({1, count}, at::kFloat);
    std::copy(values.begin(), values.end(), x.data_ptr<float>());
    gelu(context, x);
    return x;
  });
  double worst = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double x = values[static_cast<std::size_t>(i)];
    const float got = y.const_data_ptr<float>()[i];
    if (x <= -12.75 || x == 0) {
      ASSERT_EQ(got, 0.0F) << x;
      continue;
    }
    const double expected = x * 0.5 * std::erfc(-x / std::sqrt(2.0));
    const float rounded = std::fabs(static_cast<float>(expected));
    const double ulp = static_cast<double>(rounded) - std::nextafter(rounded, 0.0F);
    worst = std::max(worst, std::fabs(got - expected) / ulp);
    ASSERT_LE(std::fabs(got - expected) / ulp, 6.0) << x;
  }
  RecordProperty("worst_ulp", std::to_string(worst));
}

TEST(Gelu, HasExactLimits) {
  const at::Tensor y = same_everywhere([&](const Context& context) {
    at::Tensor x = at::full({1, 5}, 0.0F, at::kFloat);
    const float values[5] = {kInfinity, -kInfinity, std::nanf(""), 1e30F, -1e30F};
    std::copy_n(values, 5, x.data_ptr<float>());
    gelu(context, x);
    return x;
  });
  const auto* const got = y.const_data_ptr<float>();
  EXPECT_EQ(got[0], kInfinity);
  EXPECT_EQ(got[1], 0.0F);
  EXPECT_TRUE(std::isnan(got[2]));
  EXPECT_EQ(got[3], 1e30F);
  EXPECT_EQ(got[4], 0.0F);
}

TEST(AddScaled, AddsTheBiasThenScalesWithOneRounding) {
  Random random(53);
  const at::Tensor x = random_rows(random, 9, 37, 1);
  const at::Tensor y = random_rows(random, 9, 37);
  const at::Tensor bias = random_vector(random, 37);
  for (const bool has_bias : {false, true}) {
    const at::Tensor result = same_everywhere([&](const Context& context) {
      at::Tensor target = x.clone();
      add_scaled(context, y, has_bias ? bias : at::Tensor(), -0.37F, target);
      return target;
    });
    for (std::int64_t n = 0; n < 9; ++n) {
      for (std::int64_t k = 0; k < 37; ++k) {
        const float term = y[n][k].item<float>() + (has_bias ? bias[k].item<float>() : 0.0F);
        ASSERT_EQ(result[n][k].item<float>(), std::fma(-0.37F, term, x[n][k].item<float>()));
      }
    }
  }
}

TEST(ScatterRows, UndoesGatherRows) {
  Random random(54);
  const at::Tensor x = random_rows(random, 8, 21, 2);
  const std::vector<std::int32_t> rows{6, 0, 3};
  const at::Tensor result = same_everywhere([&](const Context& context) {
    at::Tensor some = at::empty({3, 21}, at::kFloat);
    gather_rows(context, x, rows, some);
    at::Tensor target = at::full({8, 21}, 2.5F, at::kFloat);
    scatter_rows(context, some, rows, target);
    return target;
  });
  for (std::int64_t n = 0; n < 8; ++n) {
    const bool written = n == 6 || n == 0 || n == 3;
    EXPECT_TRUE(same_bits(result[n], written ? x[n] : at::full({21}, 2.5F, at::kFloat))) << n;
  }
  ThreadTeam team(1);
  at::Tensor target = at::empty({6, 21}, at::kFloat);
  test::expect_error<InternalError>(
      [&] { scatter_rows(Context(team, Isa::kGeneric), x.narrow(0, 0, 3), rows, target); },
      "row 6 of 6");
}

}  // namespace
}  // namespace caravan::ops
