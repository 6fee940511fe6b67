#include "caravan/ops/packed_weight.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "caravan/core/error.h"
#include "caravan/ops/context.h"
#include "support/reference_ops.h"

namespace caravan::ops {
namespace {

using testing::Random;

void expect_equal(const PackedWeight& packed, const std::vector<float>& dense) {
  const std::int64_t in = packed.in_features();
  for (std::int64_t o = 0; o < packed.out_features(); ++o) {
    for (std::int64_t k = 0; k < in; ++k) {
      ASSERT_EQ(packed.element(o, k), dense[static_cast<std::size_t>(o * in + k)])
          << o << ", " << k;
    }
    std::vector<float> row(static_cast<std::size_t>(in));
    packed.copy_row(o, row.data());
    ASSERT_TRUE(std::equal(row.begin(), row.end(), dense.begin() + o * in)) << o;
  }
}

TEST(PackedWeight, IsFilledByRowsOrColumnsInAnyPieces) {
  Random random(41);
  constexpr std::int64_t kOut = 107;
  constexpr std::int64_t kIn = 75;
  struct Form {
    DType dtype;
    Compute compute;
  };
  for (const auto& [dtype, compute] :
       {Form{DType::kFloat32, Compute::kFloat32}, Form{DType::kBFloat16, Compute::kFloat32},
        Form{DType::kFloat16, Compute::kFloat32}, Form{DType::kBFloat16, Compute::kBFloat16}}) {
    const testing::TestWeight weight = testing::random_weight(random, kOut, kIn, dtype, compute);
    expect_equal(weight.packed, weight.dense);

    const std::vector<std::byte> rows = testing::encode(weight.dense, dtype);
    PackedWeight by_rows(kOut, kIn, dtype, compute);
    for (std::int64_t first = 0; first < kOut; first += 50) {
      const std::int64_t count = std::min<std::int64_t>(50, kOut - first);
      by_rows.set_output_rows(first, count, rows.data() + first * kIn * element_bytes(dtype));
    }
    expect_equal(by_rows, weight.dense);

    std::vector<float> transposed;
    for (std::int64_t k = 0; k < kIn; ++k) {
      for (std::int64_t o = 0; o < kOut; ++o) {
        transposed.push_back(weight.dense[static_cast<std::size_t>(o * kIn + k)]);
      }
    }
    const std::vector<std::byte> columns = testing::encode(transposed, dtype);
    PackedWeight by_columns(kOut, kIn, dtype, compute);
    for (std::int64_t first = 0; first < kIn; first += 32) {
      const std::int64_t count = std::min<std::int64_t>(32, kIn - first);
      by_columns.set_input_rows(first, count, columns.data() + first * kOut * element_bytes(dtype));
    }
    expect_equal(by_columns, weight.dense);
  }
}

TEST(PackedWeight, TakesQuantizedRowsOrColumnsInAnyPieces) {
  Random random(42);
  constexpr std::int64_t kOut = 107;
  constexpr std::int64_t kIn = 160;
  for (const DType dtype : {DType::kInt8, DType::kInt4}) {
    const testing::TestQuantized matrix = testing::random_quantized(random, kOut, kIn, dtype);
    PackedWeight by_rows(kOut, kIn, dtype);
    for (std::int64_t first = 0; first < kOut; first += 25) {
      const Range rows{first, std::min<std::int64_t>(first + 25, kOut)};
      by_rows.set_output_rows(first, rows.size(), matrix.outputs(rows).rows());
    }
    expect_equal(by_rows, matrix.dense);
    PackedWeight by_columns(kOut, kIn, dtype);
    for (std::int64_t first = 0; first < kIn; first += 64) {
      const Range columns{first, std::min<std::int64_t>(first + 64, kIn)};
      by_columns.set_input_rows(first, columns.size(), matrix.inputs(columns).rows());
    }
    expect_equal(by_columns, matrix.dense);
    EXPECT_EQ(by_columns.bytes(), 128 * kIn / 32 * (dtype == DType::kInt8 ? 34 : 20));
    EXPECT_THROW(by_rows.set_output_rows(0, 1, matrix.dense.data()), InternalError);
    EXPECT_THROW(by_rows.set_input_rows(0, 16, matrix.inputs({0, 32}).rows()), InternalError);
    EXPECT_THROW(PackedWeight(kOut, 80, dtype), InternalError);
  }
}

TEST(PackedWeight, StartsAsZerosAndTakesEmptySizes) {
  const PackedWeight zeros(40, 3, DType::kBFloat16);
  EXPECT_EQ(zeros.bytes(), 64 * 3 * 2);
  EXPECT_EQ(zeros.num_panels(), 2);
  EXPECT_EQ(PackedWeight(40, 3, DType::kBFloat16, Compute::kBFloat16).bytes(), 64 * 4 * 2);
  expect_equal(zeros, std::vector<float>(120, 0.0F));
  PackedWeight no_outputs(0, 7, DType::kFloat32);
  no_outputs.set_output_rows(0, 0, nullptr);
  no_outputs.set_input_rows(0, 7, nullptr);
  EXPECT_EQ(no_outputs.bytes(), 0);
  PackedWeight no_inputs(7, 0, DType::kFloat32);
  no_inputs.set_output_rows(0, 7, nullptr);
  EXPECT_EQ(no_inputs.bytes(), 0);
  EXPECT_THROW(no_outputs.set_output_rows(0, 1, nullptr), InternalError);
}

TEST(AllocateHuge, IsAlignedAndZero) {
  for (const std::int64_t bytes : {0L, 1L, 5000L, (2L << 20) - 1, 2L << 20, (5L << 20) + 12345}) {
    const at::Tensor memory = allocate_huge(bytes);
    ASSERT_EQ(memory.numel(), bytes);
    if (bytes == 0) continue;
    auto* const data = static_cast<std::uint8_t*>(memory.data_ptr());
    const std::uintptr_t alignment = bytes >= (2L << 20) ? 2U << 20 : 64U;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % alignment, 0U) << bytes;
    EXPECT_EQ(data[0], 0);
    EXPECT_EQ(data[bytes - 1], 0);
    data[0] = data[bytes - 1] = 1;  // both ends are ours
  }
}

TEST(Context, TakesInstructionSetsOfThisCpu) {
  EXPECT_TRUE(isa_supported(Isa::kGeneric));
  EXPECT_TRUE(isa_supported(detect_isa()));
  for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    ThreadTeam team(1);
    if (isa_supported(isa)) {
      EXPECT_EQ(Context(team, isa).isa(), isa);
    } else {
      EXPECT_THROW(Context(team, isa), DeviceError);
    }
  }
}

TEST(Context, KeepsItsScratch) {
  ThreadTeam team(1);
  const Context context(team, Isa::kGeneric);
  float* const large = context.scratch(1000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large) % 64, 0U);
  EXPECT_EQ(context.scratch(10), large);
  EXPECT_NE(context.scratch(5000000), nullptr);
}

}  // namespace
}  // namespace caravan::ops
