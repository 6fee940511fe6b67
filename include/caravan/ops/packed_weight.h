#pragma once
// A weight matrix in the layout that the kernels stream: panels of consecutive output features,
// k-major inside; for bf16 computing, pairs of k side by side, as the tile instructions take them.
//
// Elements keep the checkpoint's type (bf16, fp16 or fp32) and are expanded to float32 in
// registers, which is exact. Quantized weights (core/dtype.h) keep their codes, each group of 32
// columns with its scales and minimums behind it, and are expanded where they are used. Filled
// piece by piece at load, so that no second copy of the matrix ever exists. Memory is one
// huge-page-advised block of round_up(out, panel) * in elements (in rounded up to pairs for bf16
// computing). Leaves out: reading files (model/weight_source.h), products (linear.h).

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "caravan/core/dtype.h"
#include "caravan/core/partition.h"
#include "caravan/ops/compute.h"

namespace caravan::ops {

/// Some rows of a quantized matrix, row-major without gaps, each array in its own rows.
struct QuantizedRows {
  const std::uint8_t* codes = nullptr;      // int8 as they are; int4 in pairs of inputs
  const std::uint16_t* scales = nullptr;    // fp16, one for each group of inputs
  const std::uint16_t* minimums = nullptr;  // likewise, of int4
};

class PackedWeight {
 public:
  /// Output features per panel; a panel is [in][kPanel] elements, or [in / 2][kPanel][2] for bf16
  /// computing; missing features of the last one, and the second half of a last pair that has
  /// none, are zero.
  static constexpr std::int64_t kPanel = 32;

  PackedWeight() = default;
  /// An all-zero matrix y[out] = sum_k W[out, k] x[k]; `out_features` and `in_features` may be 0.
  /// @pre bf16 computing takes bf16 elements. Quantized weights have whole groups of inputs.
  PackedWeight(std::int64_t out_features, std::int64_t in_features, DType dtype,
               Compute compute = Compute::kFloat32);

  /// Stores output rows [first, first + count): `source` is [count, in] row-major, elements of
  /// dtype().
  void set_output_rows(std::int64_t first, std::int64_t count, const void* source);
  /// Stores input columns [first, first + count): `source` is [count, out] row-major (the matrix
  /// transposed).
  void set_input_rows(std::int64_t first, std::int64_t count, const void* source);
  /// The same of a quantized weight: codes [count, in] or [count, in / 2], the others [count, in /
  /// 32]; and transposed, whole groups of columns: [count, out] or [count / 2, out], and
  /// [count / 32, out].
  void set_output_rows(std::int64_t first, std::int64_t count, const QuantizedRows& source);
  void set_input_rows(std::int64_t first, std::int64_t count, const QuantizedRows& source);

  std::int64_t out_features() const { return out_features_; }
  std::int64_t in_features() const { return in_features_; }
  std::int64_t num_panels() const { return ceil_div(out_features_, kPanel); }
  DType dtype() const { return dtype_; }
  Compute compute() const { return compute_; }
  const void* data() const;
  std::int64_t bytes() const;

  /// Element W[out, k] as float32 (for tests and references).
  float element(std::int64_t out, std::int64_t k) const;
  /// Row `out` as float32: in_features() values (the embedding look-up).
  void copy_row(std::int64_t out, float* target) const;

 private:
  std::int64_t panel_bytes() const;
  std::int64_t panel_elements() const { return round_up(in_features_, k_group()) * kPanel; }
  /// Columns that lie side by side for each output feature.
  std::int64_t k_group() const { return compute_ == Compute::kBFloat16 ? 2 : 1; }

  std::int64_t out_features_ = 0;
  std::int64_t in_features_ = 0;
  DType dtype_ = DType::kFloat32;
  Compute compute_ = Compute::kFloat32;
  at::Tensor storage_;  // uint8, huge-page aligned
};

/// A zeroed CPU tensor of `bytes` (uint8) of its own pages, 2 MiB aligned and advised for huge
/// pages when large. Pages that are never touched cost address space only.
/// @throws DeviceError if the system has no memory left.
at::Tensor allocate_huge(std::int64_t bytes);

}  // namespace caravan::ops
