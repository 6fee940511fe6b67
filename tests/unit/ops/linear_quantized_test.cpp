// Products with quantized weights: the bits of the product with the values that their codes stand
// for, in every build, shape and cut.

#include <gtest/gtest.h>

#include "caravan/core/error.h"
#include "caravan/ops/linear.h"
#include "support/reference_products.h"

namespace caravan::ops {
namespace {

using testing::chains;
using testing::quantized_weight;
using testing::Random;
using testing::random_rows;
using testing::run_linear;
using testing::same_bits;
using testing::slices_of;
using testing::sum_over_ranks;
using testing::TestWeight;
using testing::trees;

constexpr DType kTypes[] = {DType::kInt8, DType::kInt4};

TEST(LinearQuantized, EqualsTheChainOfItsValuesInEveryShapeAndInstructionSet) {
  ThreadTeam team(2);
  Random random(1);
  struct Shape {
    std::int64_t out;
    std::int64_t in;
  };
  // Panels that are not whole, depths that are none of 64, of 256, or of both.
  for (const Shape& shape :
       {Shape{1, 32}, {31, 64}, {33, 96}, {64, 288}, {70, 512}, {160, 544}, {300, 1120}}) {
    for (const DType dtype : kTypes) {
      const TestWeight weight = quantized_weight(random, shape.out, shape.in, dtype);
      for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 33, 100}) {
        if (rows > 13 && shape.out > 200) continue;
        const at::Tensor x = random_rows(random, rows, shape.in, 5);
        const at::Tensor expected = chains(x, weight);
        for (const Isa isa : testing::supported_isas()) {
          EXPECT_TRUE(same_bits(run_linear(Context(team, isa), x, weight), expected))
              << isa_name(isa) << " " << dtype_name(dtype) << " " << rows << " rows, " << shape.out
              << " x " << shape.in;
        }
      }
    }
  }
}

TEST(LinearQuantized, EqualsTheProductWithTheValuesAsFloat32) {
  Random random(2);
  for (const DType dtype : kTypes) {
    const TestWeight weight = quantized_weight(random, 531, 1056, dtype);
    TestWeight plain{weight.out, weight.in, weight.dense,
                     PackedWeight(weight.out, weight.in, DType::kFloat32)};
    plain.packed.set_output_rows(0, plain.out, plain.dense.data());
    const at::Tensor x = random_rows(random, 200, weight.in);
    const at::Tensor bias = random_rows(random, 1, weight.out).contiguous().view({weight.out});
    for (const int threads : {1, 2, 3}) {
      ThreadTeam team(threads);
      for (const Isa isa : testing::supported_isas()) {
        const Context context(team, isa);
        for (const std::int64_t rows : {1, 2, 3, 5, 8, 13, 64, 97, 200}) {
          if (isa == Isa::kGeneric && (rows > 13 || threads > 1)) continue;
          const at::Tensor part = x.narrow(0, 200 - rows, rows);
          EXPECT_TRUE(same_bits(run_linear(context, part, weight, bias),
                                run_linear(context, part, plain, bias)))
              << isa_name(isa) << ", " << threads << " threads, " << rows << " rows";
        }
      }
    }
  }
}

TEST(LinearQuantized, TakesNoRowsAndNoOutputs) {
  ThreadTeam team(2);
  Random random(3);
  for (const Isa isa : testing::supported_isas()) {
    for (const DType dtype : kTypes) {
      const Context context(team, isa);
      const TestWeight none = quantized_weight(random, 0, 64, dtype);
      EXPECT_EQ(run_linear(context, random_rows(random, 3, 64), none).numel(), 0);
      const TestWeight weight = quantized_weight(random, 8, 64, dtype);
      EXPECT_EQ(run_linear(context, random_rows(random, 0, 64), weight).numel(), 0);
      const TestWeight no_inputs = quantized_weight(random, 40, 0, dtype);
      EXPECT_EQ(run_linear(context, random_rows(random, 2, 0), no_inputs).abs().sum().item<float>(),
                0);
    }
  }
}

TEST(LinearSlicedQuantized, EqualsItsTreeForEveryCutOverRanks) {
  ThreadTeam team(2);
  Random random(4);
  for (const DType dtype : kTypes) {
    for (const std::int64_t width : {32, 64, 96, 128, 320}) {
      for (const std::int64_t count : {1, 2, 3, 5, 9}) {
        const std::vector<Range> slices =
            slices_of(std::vector<std::int64_t>(static_cast<std::size_t>(count), width));
        const TestWeight weight = quantized_weight(random, 45, count * width, dtype);
        for (const std::int64_t rows : {1, 2, 4, 7, 27}) {
          const at::Tensor x = random_rows(random, rows, weight.in);
          const at::Tensor expected = trees(x, weight, slices);
          for (const Isa isa : testing::supported_isas()) {
            EXPECT_TRUE(same_bits(
                sum_over_ranks(Context(team, isa), x, weight, slices,
                               {{0, count / 3}, {count / 3, count / 2}, {count / 2, count}}),
                expected))
                << isa_name(isa) << ", " << count << " slices of " << width << ", " << rows
                << " rows";
          }
        }
      }
    }
  }
}

TEST(LinearQuantized, IsOfFloat32Computing) {
  EXPECT_THROW(PackedWeight(4, 32, DType::kInt8, Compute::kBFloat16), InternalError);
  EXPECT_THROW(PackedWeight(4, 32, DType::kInt4, Compute::kBFloat16), InternalError);
}

}  // namespace
}  // namespace caravan::ops
