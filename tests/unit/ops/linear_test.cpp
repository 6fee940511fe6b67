#include "caravan/ops/linear.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "caravan/core/error.h"
#include "support/reference_products.h"

namespace caravan::ops {
namespace {

using testing::chains;
using testing::Random;
using testing::random_rows;
using testing::random_weight;
using testing::run_linear;
using testing::same_bits;
using testing::slices_of;
using testing::sum_over_ranks;
using testing::TestWeight;
using testing::trees;

struct Shape {
  std::int64_t out;
  std::int64_t in;
};

TEST(Linear, EqualsItsChainInEveryShapeTypeAndInstructionSet) {
  ThreadTeam team(2);
  Random random(1);
  for (const Shape& shape : {Shape{1, 6}, {31, 72}, {33, 176}, {70, 300}, {160, 513}}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      const TestWeight weight = random_weight(random, shape.out, shape.in, dtype);
      for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 33}) {
        const at::Tensor x = random_rows(random, rows, shape.in, 5);
        const at::Tensor expected = chains(x, weight);
        for (const Isa isa : testing::supported_isas()) {
          const Context context(team, isa);
          EXPECT_TRUE(same_bits(run_linear(context, x, weight), expected))
              << isa_name(isa) << " " << dtype_name(dtype) << " " << rows << " rows, " << shape.out
              << " x " << shape.in;
        }
      }
    }
  }
}

TEST(Linear, DoesNotDependOnThreadsOrOtherRows) {
  Random random(2);
  const TestWeight weight = random_weight(random, 1531, 259, DType::kBFloat16);
  const at::Tensor x = random_rows(random, 200, weight.in);
  ThreadTeam one(1);
  const at::Tensor expected = run_linear(Context(one, detect_isa()), x, weight);
  for (const int threads : {1, 2, 3}) {
    ThreadTeam team(threads);
    for (const Isa isa : testing::supported_isas()) {
      if (isa == Isa::kGeneric && threads > 1) continue;
      const Context context(team, isa);
      for (const std::int64_t rows : {1, 2, 3, 5, 7, 8, 13, 16, 33, 64, 97, 200}) {
        if (isa == Isa::kGeneric && rows > 16) continue;
        const std::int64_t first = (200 - rows) / 2;
        EXPECT_TRUE(same_bits(run_linear(context, x.narrow(0, first, rows), weight),
                              expected.narrow(0, first, rows)))
            << isa_name(isa) << ", " << threads << " threads, " << rows << " rows";
      }
    }
  }
}

TEST(Linear, IsCloseToTheProductInDouble) {
  ThreadTeam team(1);
  Random random(3);
  const TestWeight weight = random_weight(random, 65, 1536, DType::kFloat16);
  const at::Tensor x = random_rows(random, 9, weight.in);
  const at::Tensor y = run_linear(Context(team, detect_isa()), x, weight);
  for (std::int64_t n = 0; n < 9; ++n) {
    for (std::int64_t o = 0; o < weight.out; ++o) {
      const double expected = testing::dot(x.const_data_ptr<float>() + n * weight.in,
                                           weight.dense.data() + o * weight.in, weight.in);
      // Terms are of size 1, so the chain's error is a few units of sqrt(in) * 2^-24 * |sum|.
      EXPECT_NEAR(y[n][o].item<float>(), expected, 1e-3) << n << ", " << o;
    }
  }
}

TEST(Linear, AddsTheBiasAfterTheChain) {
  ThreadTeam team(1);
  Random random(4);
  const TestWeight weight = random_weight(random, 37, 80, DType::kFloat32);
  const at::Tensor bias = random_rows(random, 1, weight.out).contiguous().view({weight.out});
  for (const std::int64_t rows : {1, 5, 30}) {
    const at::Tensor x = random_rows(random, rows, weight.in);
    const at::Tensor expected = chains(x, weight).add(bias);
    for (const Isa isa : testing::supported_isas()) {
      EXPECT_TRUE(same_bits(run_linear(Context(team, isa), x, weight, bias), expected))
          << isa_name(isa) << ", " << rows << " rows";
    }
  }
}

TEST(Linear, TakesEmptyDimensions) {
  ThreadTeam team(2);
  Random random(5);
  const at::Tensor bias = random_rows(random, 1, 40).contiguous().view({40});
  for (const Isa isa : testing::supported_isas()) {
    const Context context(team, isa);
    for (const std::int64_t rows : {0, 1, 5, 40}) {
      const TestWeight no_inputs = random_weight(random, 40, 0, DType::kBFloat16);
      const at::Tensor x = at::empty({rows, 0}, at::kFloat);
      EXPECT_TRUE(same_bits(run_linear(context, x, no_inputs), at::zeros({rows, 40}, at::kFloat)));
      EXPECT_TRUE(
          same_bits(run_linear(context, x, no_inputs, bias), bias.expand({rows, 40}).contiguous()));
      const TestWeight no_outputs = random_weight(random, 0, 8, DType::kBFloat16);
      EXPECT_EQ(run_linear(context, random_rows(random, rows, 8), no_outputs).numel(), 0);
    }
  }
}

TEST(Linear, RejectsShapesThatDoNotFit) {
  ThreadTeam team(1);
  Random random(6);
  const Context context(team, Isa::kGeneric);
  const TestWeight weight = random_weight(random, 8, 4, DType::kFloat32);
  at::Tensor y = at::empty({2, 8}, at::kFloat);
  EXPECT_THROW(linear(context, random_rows(random, 2, 5), weight.packed, {}, y), InternalError);
  EXPECT_THROW(linear(context, random_rows(random, 3, 4), weight.packed, {}, y), InternalError);
  at::Tensor doubles = at::empty({2, 8}, at::kDouble);
  EXPECT_THROW(linear(context, random_rows(random, 2, 4), weight.packed, {}, doubles),
               InternalError);
  at::Tensor part = y.narrow(1, 0, 4);
  EXPECT_THROW(linear(context, part, weight.packed, {}, y), InternalError);
}

TEST(LinearSliced, EqualsItsTreeForAnyNumberOfSlices) {
  ThreadTeam team(2);
  Random random(7);
  for (std::int64_t count = 1; count <= 17; ++count) {
    const std::vector<Range> slices =
        slices_of(std::vector<std::int64_t>(static_cast<std::size_t>(count), 24));
    const TestWeight weight = random_weight(random, 45, count * 24, DType::kBFloat16);
    for (const std::int64_t rows : {1, 4, 7, 27}) {
      const at::Tensor x = random_rows(random, rows, weight.in);
      const at::Tensor expected = trees(x, weight, slices);
      for (const Isa isa : testing::supported_isas()) {
        EXPECT_TRUE(same_bits(sum_over_ranks(Context(team, isa), x, weight, slices, {{0, count}}),
                              expected))
            << isa_name(isa) << ", " << count << " slices, " << rows << " rows";
      }
    }
  }
}

TEST(LinearSliced, TakesSlicesOfAnyWidth) {
  ThreadTeam team(1);
  Random random(8);
  // Wider than what is expanded at a time, empty ones at either end and inside, cuts at 256.
  for (const std::vector<std::int64_t>& widths : {std::vector<std::int64_t>{300, 0, 5, 700, 1, 0},
                                                  {0, 256, 256, 0, 3},
                                                  {0},
                                                  {0, 0, 0},
                                                  {80, 80, 80, 80, 80},
                                                  {1000}}) {
    const std::vector<Range> slices = slices_of(widths);
    const TestWeight weight = random_weight(random, 33, slices.back().end, DType::kFloat32);
    for (const std::int64_t rows : {1, 5, 30}) {
      const at::Tensor x = random_rows(random, rows, weight.in);
      const at::Tensor expected = trees(x, weight, slices);
      for (const Isa isa : testing::supported_isas()) {
        const auto count = static_cast<std::int64_t>(slices.size());
        EXPECT_TRUE(same_bits(sum_over_ranks(Context(team, isa), x, weight, slices, {{0, count}}),
                              expected))
            << isa_name(isa) << ", " << widths[0] << ", ..., " << rows << " rows";
      }
    }
  }
}

TEST(LinearSliced, GivesTheSameBitsForEveryCutOverRanks) {
  ThreadTeam team(1);
  Random random(9);
  constexpr std::int64_t kSlices = 9;
  const std::vector<Range> slices = slices_of(std::vector<std::int64_t>(kSlices, 64));
  const TestWeight weight = random_weight(random, 40, kSlices * 64, DType::kBFloat16);
  const at::Tensor x = random_rows(random, 5, weight.in);
  const at::Tensor expected = trees(x, weight, slices);
  const Context context(team, detect_isa());
  // Every way to cut nine slices into five contiguous, possibly empty ranges.
  int cuts = 0;
  for (std::int64_t a = 0; a <= kSlices; ++a) {
    for (std::int64_t b = a; b <= kSlices; ++b) {
      for (std::int64_t c = b; c <= kSlices; ++c) {
        for (std::int64_t d = c; d <= kSlices; ++d) {
          const at::Tensor got = sum_over_ranks(context, x, weight, slices,
                                                {{0, a}, {a, b}, {b, c}, {c, d}, {d, kSlices}});
          ASSERT_TRUE(same_bits(got, expected)) << a << " " << b << " " << c << " " << d;
          ++cuts;
        }
      }
    }
  }
  EXPECT_EQ(cuts, 715);
}

TEST(LinearSliced, RejectsLayoutsThatDoNotFit) {
  ThreadTeam team(1);
  Random random(10);
  const Context context(team, Isa::kGeneric);
  const TestWeight weight = random_weight(random, 8, 12, DType::kFloat32);
  const at::Tensor x = random_rows(random, 2, 12);
  at::Tensor partials = at::empty({1, 2, 8}, at::kFloat);
  const SliceTree tree(3);
  SliceLayout layout{slices_of({4, 4, 4}), 0, tree.cover({0, 3})};
  linear_sliced(context, x, weight.packed, layout, partials);
  layout.slices.back().end = 11;
  EXPECT_THROW(linear_sliced(context, x, weight.packed, layout, partials), InternalError);
  layout.slices.back().end = 12;
  layout.nodes = tree.cover({0, 2});
  EXPECT_THROW(linear_sliced(context, x, weight.packed, layout, partials), InternalError);
}

}  // namespace
}  // namespace caravan::ops
