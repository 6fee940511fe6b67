#pragma once
// What tests of the operations share: random operands, the instruction sets of this machine,
// comparison by bits.

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "caravan/core/dtype.h"
#include "caravan/core/partition.h"
#include "caravan/ops/context.h"
#include "caravan/ops/packed_weight.h"

namespace caravan::testing {

/// Instruction sets that this CPU can run and that differ in float32 computing, generic first.
std::vector<ops::Isa> supported_isas();

using Random = std::mt19937;

/// [rows, columns] float32, standard normal. `extra` columns of NaN follow each row in memory.
at::Tensor random_rows(Random& random, std::int64_t rows, std::int64_t columns,
                       std::int64_t extra = 0);

/// Random codes and scales of a quantized matrix, and the values that core/dtype.h gives them.
struct TestQuantized {
  DType dtype = DType::kInt8;
  std::int64_t out = 0;
  std::int64_t in = 0;
  std::vector<std::uint8_t> codes;  // [out][in], also of int4
  std::vector<std::uint16_t> scales;
  std::vector<std::uint16_t> minimums;
  std::vector<float> dense;  // [out][in]

  /// Arrays as PackedWeight takes them: of outputs (rows), or of inputs (the matrix transposed).
  struct Arrays {
    std::vector<std::uint8_t> codes;
    std::vector<std::uint16_t> scales;
    std::vector<std::uint16_t> minimums;
    ops::QuantizedRows rows() const { return {codes.data(), scales.data(), minimums.data()}; }
  };
  Arrays outputs(Range rows) const;
  Arrays inputs(Range columns) const;
};

/// A dense matrix rounded to a storage type, in both forms.
struct TestWeight {
  std::int64_t out = 0;
  std::int64_t in = 0;
  std::vector<float> dense;  // [out][in], values that `dtype` holds exactly
  ops::PackedWeight packed;
  TestQuantized quantized = {};  // of quantized weights
};
TestWeight random_weight(Random& random, std::int64_t out, std::int64_t in, DType dtype,
                         ops::Compute compute = ops::Compute::kFloat32);

TestQuantized random_quantized(Random& random, std::int64_t out, std::int64_t in, DType dtype);
/// Of random_quantized.
TestWeight quantized_weight(Random& random, std::int64_t out, std::int64_t in, DType dtype);

/// `values` in the storage type, which is not quantized.
std::vector<std::byte> encode(const std::vector<float>& values, DType dtype);

/// Product in double.
double dot(const float* x, const float* weights, std::int64_t count);

/// Whether two tensors of one shape hold the same bits; if not, where they differ first.
::testing::AssertionResult same_bits(const at::Tensor& got, const at::Tensor& expected);

/// Runs `operation(context)` in every build with 1, 2 and 3 threads; all must give the same bits.
template <typename Operation>
at::Tensor same_everywhere(const Operation& operation) {
  at::Tensor first;
  for (const int threads : {1, 2, 3}) {
    ThreadTeam team(threads);
    for (const ops::Isa isa : supported_isas()) {
      const at::Tensor result = operation(ops::Context(team, isa));
      if (!first.defined()) first = result;
      EXPECT_TRUE(same_bits(result, first)) << ops::isa_name(isa) << ", " << threads << " threads";
    }
  }
  return first;
}

}  // namespace caravan::testing
