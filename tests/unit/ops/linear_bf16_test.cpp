// Products of bf16 computing: the same bits as the plain chains of support/reference_products.h, in
// every build and with tile instructions.

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "caravan/core/error.h"
#include "caravan/ops/linear.h"
#include "support/reference_products.h"

namespace caravan::ops {
namespace {

using testing::chains;
using testing::Random;
using testing::random_rows;
using testing::run_linear;
using testing::same_bits;
using testing::slices_of;
using testing::sum_over_ranks;
using testing::TestWeight;
using testing::trees;

TestWeight random_weight(Random& random, std::int64_t out, std::int64_t in) {
  return testing::random_weight(random, out, in, DType::kBFloat16, Compute::kBFloat16);
}

std::vector<Isa> isas() {
  std::vector<Isa> all = testing::supported_isas();
  if (isa_supported(Isa::kAmx)) all.push_back(Isa::kAmx);
  return all;
}

TEST(LinearBf16, HasTileInstructionsHere) {
  if (!isa_supported(Isa::kAmx)) {
    GTEST_SKIP()
        << "this CPU or system has no AMX tiles for bf16: the other tests of this file run "
           "without them";
  }
  EXPECT_EQ(detect_isa(Compute::kBFloat16), Isa::kAmx);
}

TEST(LinearBf16, EqualsItsChainInEveryShapeAndInstructionSet) {
  ThreadTeam team(2);
  Random random(1);
  struct Shape {
    std::int64_t out;
    std::int64_t in;
  };
  for (const Shape& shape : {Shape{1, 1},
                             {3, 6},
                             {31, 72},
                             {33, 176},
                             {70, 33},
                             {64, 640},
                             {40, 641},
                             {32, 672},
                             {45, 1353}}) {
    const TestWeight weight = random_weight(random, shape.out, shape.in);
    for (const std::int64_t rows : {1, 2, 3, 5, 6, 7, 13, 15, 16, 17, 31, 32, 33, 50}) {
      const at::Tensor x = random_rows(random, rows, shape.in, 5);
      const at::Tensor expected = chains(x, weight);
      for (const Isa isa : isas()) {
        EXPECT_TRUE(same_bits(run_linear(Context(team, isa), x, weight), expected))
            << isa_name(isa) << ", " << rows << " rows, " << shape.out << " x " << shape.in;
      }
    }
  }
}

TEST(LinearBf16, DoesNotDependOnThreadsOrOtherRows) {
  Random random(2);
  const TestWeight weight = random_weight(random, 331, 2100);
  constexpr std::int64_t kRows = 700;  // more than one group of rows
  const at::Tensor x = random_rows(random, kRows, weight.in);
  ThreadTeam one(1);
  const at::Tensor expected = run_linear(Context(one, detect_isa(Compute::kBFloat16)), x, weight);
  for (const int threads : {1, 2, 3}) {
    ThreadTeam team(threads);
    for (const Isa isa : isas()) {
      const Context context(team, isa);
      for (std::int64_t rows = 1; rows <= kRows; rows += rows <= 100 ? 1 : 200) {
        if (isa != detect_isa(Compute::kBFloat16) && rows % 8 != threads) continue;
        if (isa == Isa::kGeneric && rows > 20) continue;
        const std::int64_t first = (kRows - rows) / 2;
        ASSERT_TRUE(same_bits(run_linear(context, x.narrow(0, first, rows), weight),
                              expected.narrow(0, first, rows)))
            << isa_name(isa) << ", " << threads << " threads, " << rows << " rows";
      }
    }
  }
}

TEST(LinearBf16, AddsTheBiasAfterTheChain) {
  ThreadTeam team(1);
  Random random(4);
  const TestWeight weight = random_weight(random, 37, 80);
  const at::Tensor bias = random_rows(random, 1, weight.out).contiguous().view({weight.out});
  for (const std::int64_t rows : {1, 20, 40}) {
    const at::Tensor x = random_rows(random, rows, weight.in);
    const at::Tensor expected = chains(x, weight).add(bias);
    for (const Isa isa : isas()) {
      EXPECT_TRUE(same_bits(run_linear(Context(team, isa), x, weight, bias), expected))
          << isa_name(isa) << ", " << rows << " rows";
    }
  }
}

TEST(LinearBf16, TakesEmptyDimensions) {
  ThreadTeam team(2);
  Random random(5);
  for (const Isa isa : isas()) {
    const Context context(team, isa);
    for (const std::int64_t rows : {0, 1, 40}) {
      const TestWeight no_inputs = random_weight(random, 40, 0);
      EXPECT_TRUE(same_bits(run_linear(context, at::empty({rows, 0}, at::kFloat), no_inputs),
                            at::zeros({rows, 40}, at::kFloat)));
      const TestWeight no_outputs = random_weight(random, 0, 8);
      EXPECT_EQ(run_linear(context, random_rows(random, rows, 8), no_outputs).numel(), 0);
    }
  }
}

/// Bits with exponents from `least` on, `count` of them; also of products around the least normal
/// number, where flushing shows.
float with_exponent(Random& random, std::uint32_t least, std::uint32_t count) {
  const std::uint32_t exponent = least + static_cast<std::uint32_t>(random()) % count;
  const auto bits = static_cast<std::uint32_t>(random());
  return std::bit_cast<float>((bits & 0x80ff0000U & ~0x7f800000U) | exponent << 23);
}

TEST(LinearBf16, RoundsAndFlushesAsTheInstructionDoes) {
  ThreadTeam team(1);
  Random random(6);
  constexpr std::int64_t kIn = 65;
  constexpr std::int64_t kOut = 64;
  struct Range32 {
    std::uint32_t least;
    std::uint32_t count;
  };
  std::int64_t zeros = 0;
  std::int64_t infinities = 0;
  for (const Range32& exponents : {Range32{60, 8}, {62, 3}, {0, 2}, {55, 20}, {187, 8}, {0, 255}}) {
    for (int round = 0; round < 20; ++round) {
      TestWeight weight{
          kOut, kIn, {}, PackedWeight(kOut, kIn, DType::kBFloat16, Compute::kBFloat16)};
      for (std::int64_t i = 0; i < kOut * kIn; ++i) {
        weight.dense.push_back(with_exponent(random, exponents.least, exponents.count));
      }
      weight.packed.set_output_rows(0, kOut,
                                    testing::encode(weight.dense, DType::kBFloat16).data());
      at::Tensor x = at::empty({18, kIn}, at::kFloat);
      for (std::int64_t i = 0; i < x.numel(); ++i) {
        x.data_ptr<float>()[i] = with_exponent(random, exponents.least, exponents.count);
      }
      const at::Tensor expected = chains(x, weight);
      for (std::int64_t i = 0; i < expected.numel(); ++i) {
        const float value = expected.const_data_ptr<float>()[i];
        zeros += value == 0 ? 1 : 0;
        infinities += std::isinf(value) ? 1 : 0;
      }
      const at::Tensor numbers = expected.nan_to_num(7.0);
      for (const Isa isa : isas()) {
        const at::Tensor y = run_linear(Context(team, isa), x, weight);
        EXPECT_TRUE(same_bits(y.nan_to_num(7.0), numbers))
            << isa_name(isa) << ", exponents from " << exponents.least;
      }
    }
  }
  EXPECT_GT(zeros, 100);
  EXPECT_GT(infinities, 100);
}

TEST(LinearBf16, TwinFlushesWhatRoundsUpToTheLeastNormalNumber) {
  // 1 - 2^-24 rounds up to 1 with the least exponent but is a number of its own with one less.
  const float below = std::bit_cast<float>(0x3f7fffffU);  // 1 - 2^-24
  EXPECT_EQ(testing::flushing_fma(below, 0x1p-126F, 0), 0.0F);
  EXPECT_EQ(testing::flushing_fma(1, 0x1p-126F, 0), 0x1p-126F);
  EXPECT_EQ(testing::flushing_add(0x1p-126F, 0x1p-127F), 0x1p-126F);  // the operand is zero
  EXPECT_EQ(testing::flushing_add(0x1.8p-126F, -0x1p-126F), 0.0F);
  EXPECT_TRUE(std::signbit(testing::flushing_add(0x1p-126F, -0x1.8p-126F)));
}

TEST(LinearSlicedBf16, EqualsItsTreeForAnyNumberOfSlicesOfAnyWidth) {
  ThreadTeam team(2);
  Random random(7);
  // Long slices, and those of odd widths, of heads of 80, of no columns.
  for (const std::int64_t width : {1, 24, 64, 80, 160, 330, 700}) {
    for (std::int64_t count = 1; count <= (width < 100 ? 17 : 5); ++count) {
      std::vector<std::int64_t> widths(static_cast<std::size_t>(count), width);
      if (count % 3 == 2) widths[static_cast<std::size_t>(count / 2)] = count % 2 == 0 ? 0 : 65;
      const std::vector<Range> slices = slices_of(widths);
      const TestWeight weight = random_weight(random, 45, slices.back().end);
      for (const std::int64_t rows : {1, 7, 27, 40}) {
        if (rows == 40 && width > 100) continue;
        const at::Tensor x = random_rows(random, rows, weight.in);
        const at::Tensor expected = trees(x, weight, slices);
        for (const Isa isa : isas()) {
          if (isa == Isa::kGeneric && rows > 7) continue;
          EXPECT_TRUE(same_bits(sum_over_ranks(Context(team, isa), x, weight, slices, {{0, count}}),
                                expected))
              << isa_name(isa) << ", " << count << " slices of " << width << ", " << rows
              << " rows";
        }
      }
    }
  }
}

TEST(LinearSlicedBf16, GivesTheSameBitsForEveryCutOverRanks) {
  ThreadTeam team(1);
  Random random(9);
  constexpr std::int64_t kSlices = 9;
  for (const std::int64_t width : {64, 17}) {
    const std::vector<Range> slices = slices_of(std::vector<std::int64_t>(kSlices, width));
    const TestWeight weight = random_weight(random, 40, kSlices * width);
    const at::Tensor x = random_rows(random, 5, weight.in);
    const at::Tensor expected = trees(x, weight, slices);
    const Context context(team, detect_isa(Compute::kBFloat16));
    for (std::int64_t a = 0; a <= kSlices; ++a) {
      for (std::int64_t b = a; b <= kSlices; ++b) {
        for (std::int64_t c = b; c <= kSlices; ++c) {
          const at::Tensor got =
              sum_over_ranks(context, x, weight, slices, {{0, a}, {a, b}, {b, c}, {c, kSlices}});
          ASSERT_TRUE(same_bits(got, expected)) << width << ": " << a << " " << b << " " << c;
        }
      }
    }
  }
}

TEST(LinearBf16, TakesWeightsStoredAsBf16Only) {
  EXPECT_THROW(PackedWeight(4, 4, DType::kFloat32, Compute::kBFloat16), InternalError);
  EXPECT_THROW(PackedWeight(4, 4, DType::kFloat16, Compute::kBFloat16), InternalError);
}

}  // namespace
}  // namespace caravan::ops
