#pragma once
// What one build of the kernels offers, and the plain arguments it takes: pointers and sizes only.
// The builds are compiled with different instruction sets, so nothing here may drag in code that
// the linker could pick for a CPU that cannot run it: types and constants, no inline functions that
// kernels call. Leaves out: checks of shapes and sharing of rows (src/ops/*.cpp).

#include <cstdint>

#include "caravan/core/dtype.h"
#include "caravan/core/partition.h"
#include "caravan/core/thread_team.h"
#include "caravan/ops/key_run.h"

namespace caravan::ops {

/// A product with a packed weight. Plain products are the case of one slice and one node.
struct LinearArgs {
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
  const void* weights = nullptr;
  DType dtype = DType::kFloat32;
  const float* bias = nullptr;  // [out] or null; added after the chain of a plain product
  float* y = nullptr;           // [nodes][rows][out] with the strides below
  std::int64_t y_stride = 0;
  std::int64_t y_node_stride = 0;
  const Range* slices = nullptr;  // consecutive columns, together [0, in)
  std::int64_t num_slices = 0;
  const SliceTree::Node* nodes = nullptr;  // their slices: global indices from first_slice on
  std::int64_t first_slice = 0;
  std::int64_t stack_levels = 0;  // tiles that wait for their right sibling, at most
  float* packed = nullptr;        // ProductKernels::packed_floats
  float* stacks = nullptr;        // ProductKernels::stack_floats for each thread
};

/// How products of one kind are computed: all inputs are packed, then all threads multiply.
struct ProductKernels {
  /// Floats that `pack` fills; 0: inputs are read in place.
  std::int64_t (*packed_floats)(const LinearArgs& args);
  std::int64_t (*stack_floats)(const LinearArgs& args);
  void (*pack)(const LinearArgs& args, ThreadShare share);
  void (*multiply)(const LinearArgs& args, ThreadShare share);
};

/// Most queries that one attention tile can have in any build.
inline constexpr int kMaxAttentionQueries = 12;

/// Queries of one sequence that read the same KV head.
struct AttentionTile {
  int count = 0;
  const float* queries[kMaxAttentionQueries] = {};  // [head_dim] each
  float* outputs[kMaxAttentionQueries] = {};        // [head_dim] each
  std::int64_t visible[kMaxAttentionQueries] = {};  // positions [0, visible) are read; >= 1
  DType cache_dtype = DType::kFloat32;              // of keys and values: float32 or bf16
  const void* keys = nullptr;                       // of this head in block 0: [head_dim][16]
  const void* values = nullptr;                     // of this head in block 0: [16][padded_dim]
  std::int64_t key_block_stride = 0;
  std::int64_t value_block_stride = 0;
  const std::int32_t* blocks = nullptr;
  const KeyRun* runs = nullptr;  // null: no position below `visible` is empty; else all queries
  std::int64_t num_runs = 0;     // see the same runs, each from the next block on
  std::int64_t head_dim = 0;
  std::int64_t padded_dim = 0;
  float scale = 0;
  float* query_scratch = nullptr;  // head_dim * attention_queries floats
  float* scores = nullptr;         // attention_queries rows of score_stride floats
  std::int64_t score_stride = 0;   // multiple of 16, at least the largest `visible`
};

/// Loops that show what the vectors and the memory give at most (caravan/ops/peaks.h).
struct PeakKernels {
  double flop;  // of one call of `multiply`
  float (*multiply)(float factor);
  float (*read)(const float* values, std::int64_t count);
};

struct KernelTable {
  ProductKernels linear;       // of float32 computing
  ProductKernels linear_bf16;  // of bf16 computing

  int attention_queries;  // most queries a tile may have
  void (*attention)(const AttentionTile& tile);

  void (*rms_norm)(const float* x, const float* weight, float epsilon, std::int64_t width,
                   float* y);
  void (*swiglu)(const float* gate, const float* up, std::int64_t width, float* y);
  /// Weight and bias [width].
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float epsilon,
                     std::int64_t width, float* y);
  void (*gelu)(const float* x, std::int64_t width, float* y);
  /// `bias` may be null.
  void (*add_scaled)(const float* y, const float* bias, float scale, std::int64_t width, float* x);
  void (*argmax)(const float* x, std::int64_t width, float* value, std::int32_t* index);

  void (*sin_cos)(const float* angles, std::int64_t count, float* sines, float* cosines);
  void (*exp_shifted)(const float* x, std::int64_t count, float shift, float* y);
  float (*row_max)(const float* x, std::int64_t count);
  double (*exp_sum)(const float* x, std::int64_t count, float shift);

  PeakKernels peaks;
};

extern const KernelTable kGenericKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
/// bf16 computing with tile instructions; all else is done by kAvx512Kernels.
extern const ProductKernels kAmxKernels;
/// The like of PeakKernels for tiles.
extern const double kAmxTileFlop;  // of one call
void multiply_tiles();

}  // namespace caravan::ops
