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

}  // namespace

extern const ProductKernels kAmxKernels = kBf16Products;

}  // namespace caravan::ops
