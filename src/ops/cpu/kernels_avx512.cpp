// The kernels built for AVX-512 (F, BW, DQ, VL). Everything lives in an unnamed namespace, so that
// no function compiled for this instruction set can replace one of another build at link time.

#include <immintrin.h>

#include "kernel_table.h"
#include "quantized_groups.h"

namespace caravan::ops {
namespace {

// Each file uses those before it.
// clang-format off
#include "elements.inl"
#include "simd_avx512.inl"
#include "kernels.inl"
// clang-format on

}  // namespace

extern const KernelTable kAvx512Kernels = kTable;

}  // namespace caravan::ops
