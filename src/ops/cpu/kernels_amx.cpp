// Products of bf16 computing built for AMX tiles (and AVX-512 for what is around them). Everything
// lives in an unnamed namespace, so that no function compiled for these instructions can replace
// one of another build at link time.

#include <immintrin.h>

#include "kernel_table.h"

namespace caravan::ops {
namespace {

// Each file uses those before it.
// clang-format off
#include "elements.inl"
#include "simd_avx512.inl"
#include "spans.inl"
#include "tile.inl"
#include "bf16_block.inl"
#include "bf16_tiles.inl"
#include "linear_bf16.inl"
// clang-format on

constexpr int kPeakRounds = 4000;

}  // namespace

extern const ProductKernels kAmxKernels = kBf16Products;

extern const double kAmxTileFlop = 4.0 * kPeakRounds * 2 * kTileSide * kTileSide * kRunColumns;

void multiply_tiles() {
  LinearArgs whole_tiles;
  whole_tiles.rows = kTileSide;
  const BlockUnit unit(whole_tiles);
  // What the registers hold does not matter to the time.
  for (int i = 0; i < kPeakRounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

}  // namespace caravan::ops
