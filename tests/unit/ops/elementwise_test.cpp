#include "caravan/ops/elementwise.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "caravan/core/error.h"
#include "support/reference_ops.h"

namespace caravan::ops {
namespace {

using testing::Random;
using testing::random_rows;
using testing::same_bits;
using testing::same_everywhere;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(AddBias, AddsToEveryRowAndNothingElse) {
  Random random(24);
  for (const std::int64_t width : {1, 15, 16, 17, 576}) {
    const at::Tensor x = random_rows(random, 70, width, 3);
    const at::Tensor bias = random_rows(random, 1, width).contiguous().view({width});
    const at::Tensor y = same_everywhere([&](const Context& context) {
      at::Tensor result = x.clone();
      add_bias(context, bias, result);
      return result;
    });
    EXPECT_TRUE(same_bits(y, x.add(bias))) << width;
  }
  ThreadTeam team(1);
  const Context context(team, Isa::kGeneric);
  at::Tensor x = random_rows(random, 2, 5);
  EXPECT_THROW(add_bias(context, at::full({4}, 1.0F), x), InternalError);
}

TEST(RmsNorm, DividesByTheRootMeanSquare) {
  Random random(21);
  for (const std::int64_t width : {1, 6, 16, 31, 576, 2050}) {
    const at::Tensor x = random_rows(random, 40, width, 3);
    const at::Tensor weight = random_rows(random, 1, width).contiguous().view({width});
    const at::Tensor y = same_everywhere([&](const Context& context) {
      at::Tensor result = at::full({40, width}, std::nan(""), at::kFloat);
      rms_norm(context, x, weight, 1e-5F, result);
      return result;
    });
    const at::Tensor alone = same_everywhere([&](const Context& context) {
      at::Tensor result = at::empty({1, width}, at::kFloat);
      rms_norm(context, x.narrow(0, 17, 1), weight, 1e-5F, result);
      return result;
    });
    EXPECT_TRUE(same_bits(alone, y.narrow(0, 17, 1))) << width;
    for (std::int64_t n = 0; n < 40; ++n) {
      double squares = 0;
      for (std::int64_t k = 0; k < width; ++k) squares += std::pow(x[n][k].item<double>(), 2);
      const double factor = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
      for (std::int64_t k = 0; k < width; k += 7) {
        const double expected = x[n][k].item<double>() * factor * weight[k].item<double>();
        ASSERT_NEAR(y[n][k].item<float>(), expected, 1e-6 + 1e-6 * std::fabs(expected));
      }
    }
  }
}

TEST(Swiglu, IsSiluTimesUp) {
  Random random(22);
  for (const std::int64_t width : {1, 33, 1536}) {
    at::Tensor gate_up = random_rows(random, 9, 2 * width, 1);
    gate_up.narrow(1, 0, width).mul_(8);
    gate_up[0][0].fill_(-200);  // exp overflows: silu is -0
    gate_up[1][0].fill_(200);
    const at::Tensor y = same_everywhere([&](const Context& context) {
      at::Tensor result = at::empty({9, width}, at::kFloat);
      swiglu(context, gate_up, result);
      return result;
    });
    for (std::int64_t n = 0; n < 9; ++n) {
      for (std::int64_t k = 0; k < width; ++k) {
        const double gate = gate_up[n][k].item<double>();
        const double expected = gate / (1 + std::exp(-gate)) * gate_up[n][width + k].item<double>();
        ASSERT_NEAR(y[n][k].item<float>(), expected, 1e-30 + 1e-6 * std::fabs(expected));
      }
    }
  }
}

TEST(Embedding, ReadsRowsOfItsShardAndZerosElsewhere) {
  Random random(23);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const testing::TestWeight table = testing::random_weight(random, 70, 50, dtype);
    const std::vector<std::int32_t> tokens{100, 169, 99, 170, 131, 132, 0, 100};
    const auto rows = static_cast<std::int64_t>(tokens.size());
    const at::Tensor x = same_everywhere([&](const Context& context) {
      at::Tensor result = at::full({rows, 50}, std::nan(""), at::kFloat);
      embedding(context, tokens, table.packed, Range{100, 170}, result);
      return result;
    });
    for (std::int64_t n = 0; n < rows; ++n) {
      const std::int64_t row = tokens[static_cast<std::size_t>(n)] - 100;
      for (std::int64_t k = 0; k < 50; ++k) {
        const bool here = row >= 0 && row < 70;
        const float expected = here ? table.dense[static_cast<std::size_t>(row * 50 + k)] : 0.0F;
        ASSERT_EQ(x[n][k].item<float>(), expected);
      }
    }
  }
}

TEST(Embedding, MakesEveryZeroPositive) {
  PackedWeight table(1, 3, DType::kFloat32);
  const std::vector<float> row{-0.0F, 0.0F, -1.0F};
  table.set_output_rows(0, 1, row.data());
  const std::vector<std::int32_t> tokens{0};
  const at::Tensor x = same_everywhere([&](const Context& context) {
    at::Tensor result = at::empty({1, 3}, at::kFloat);
    embedding(context, tokens, table, Range{0, 1}, result);
    return result;
  });
  EXPECT_FALSE(std::signbit(x[0][0].item<float>()));
  EXPECT_EQ(x[0][2].item<float>(), -1.0F);
}

TEST(GatherRows, CopiesRowsInTheOrderAsked) {
  Random random(24);
  const at::Tensor x = random_rows(random, 50, 600, 2);
  const std::vector<std::int32_t> rows{49, 0, 7, 7};
  const at::Tensor y = same_everywhere([&](const Context& context) {
    at::Tensor result = at::empty({4, 600}, at::kFloat);
    gather_rows(context, x, rows, result);
    return result;
  });
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(same_bits(y[i], x[rows[static_cast<std::size_t>(i)]]));
  }
  ThreadTeam team(1);
  at::Tensor result = at::empty({1, 600}, at::kFloat);
  const std::vector<std::int32_t> outside{50};
  EXPECT_THROW(gather_rows(Context(team, Isa::kGeneric), x, outside, result), InternalError);
}

/// The best of one row, which every build must agree on.
ArgMax argmax_of(const std::vector<float>& row) {
  at::Tensor logits = at::empty({1, static_cast<std::int64_t>(row.size())}, at::kFloat);
  std::copy(row.begin(), row.end(), logits.data_ptr<float>());
  ArgMax best;
  for (const Isa isa : testing::supported_isas()) {
    ThreadTeam team(1);
    ArgMax found;
    argmax(Context(team, isa), logits, {&found, 1});
    if (isa != Isa::kGeneric) {
      EXPECT_EQ(found.index, best.index) << isa_name(isa);
      EXPECT_TRUE(found.value == best.value || std::isnan(best.value)) << isa_name(isa);
    }
    best = found;
  }
  return best;
}

TEST(Argmax, FindsTheLowestIndexOfTheLargestValue) {
  Random random(25);
  for (const std::int64_t width : {1, 15, 16, 17, 1000, 49152}) {
    const at::Tensor logits = random_rows(random, 5, width);
    std::vector<ArgMax> best(5);
    ThreadTeam team(2);
    for (const Isa isa : testing::supported_isas()) {
      argmax(Context(team, isa), logits, best);
      for (std::int64_t n = 0; n < 5; ++n) {
        const auto* const row = logits.const_data_ptr<float>() + n * width;
        const auto* const expected = std::max_element(row, row + width);
        EXPECT_EQ(best[static_cast<std::size_t>(n)].index, expected - row);
        EXPECT_EQ(best[static_cast<std::size_t>(n)].value, *expected);
      }
    }
  }
  std::vector<float> ties(40, 1.0F);
  ties[3] = ties[21] = 2.0F;
  EXPECT_EQ(argmax_of(ties).index, 3);
  EXPECT_EQ(argmax_of({-0.0F, 0.0F}).index, 0);
  EXPECT_EQ(argmax_of(std::vector<float>(20, -kInfinity)).index, 0);
  EXPECT_EQ(argmax_of(std::vector<float>(19, -1.0F)).index, 0);
}

TEST(Argmax, ReportsNanAndEmptyRows) {
  std::vector<float> row(40, 1.0F);
  row[9] = kInfinity;
  row[33] = std::nanf("");
  const ArgMax found = argmax_of(row);
  EXPECT_EQ(found.index, 33);
  EXPECT_TRUE(std::isnan(found.value));
  EXPECT_EQ(argmax_of({}).index, -1);
}

}  // namespace
}  // namespace caravan::ops
