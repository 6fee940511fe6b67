#include "caravan/ops/peaks.h"

#include <gtest/gtest.h>

namespace caravan::ops {
namespace {

TEST(Peaks, AreRatesThatACpuCanHave) {
  ThreadTeam team(1);
  for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (!isa_supported(isa)) continue;
    const Peaks peaks = measure_peaks(Context(team, isa));
    // From a slow machine to ten times what one core has today.
    EXPECT_GT(peaks.read_bytes_per_second, 1e8) << isa_name(isa);
    EXPECT_LT(peaks.read_bytes_per_second, 1e12) << isa_name(isa);
    EXPECT_GT(peaks.fma_flop_per_second, 1e8) << isa_name(isa);
    EXPECT_LT(peaks.fma_flop_per_second, 1e13) << isa_name(isa);
    EXPECT_EQ(peaks.tile_flop_per_second > 0, isa == Isa::kAmx) << isa_name(isa);
    EXPECT_LT(peaks.tile_flop_per_second, 1e14) << isa_name(isa);
  }
}

}  // namespace
}  // namespace caravan::ops
