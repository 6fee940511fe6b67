// The kernels over one vector layer, and the table that names them.

// Each file uses those before it.
// clang-format off
#include "spans.inl"
#include "tile.inl"
#include "expand.inl"
#include "linear_tiles.inl"
#include "linear_few_rows.inl"
#include "linear.inl"
#include "bf16_block.inl"
#include "bf16_chains.inl"
#include "linear_bf16.inl"
#include "math.inl"
#include "attention.inl"
#include "rows.inl"
#include "vision_rows.inl"
#include "peaks.inl"
// clang-format on

constexpr KernelTable kTable = {
    .linear = {linear_packed_floats, linear_stack_floats, linear_pack, linear},
    .linear_bf16 = kBf16Products,
    .attention_queries = kTileRows,
    .attention = attention,
    .rms_norm = rms_norm,
    .swiglu = swiglu,
    .layer_norm = layer_norm,
    .gelu = gelu,
    .add_scaled = add_scaled,
    .argmax = argmax,
    .sin_cos = sin_cos,
    .exp_shifted = exp_shifted,
    .row_max = row_max,
    .exp_sum = exp_sum,
    .peaks = kPeakKernels,
};
static_assert(kTileRows <= kMaxAttentionQueries);
