#pragma once
// How matrices are stored that may be quantized: which are, in which type, and as which datasets.
//
// A quantized matrix is its codes under its own name and beside them ".scales" and, of int4,
// ".minimums", all with the split axis first and in the same bands, so that every rank reads and
// checks its own part of each. Groups of inputs (core/dtype.h) must not be cut by a band.

#include <cstdint>
#include <string>
#include <vector>

#include "caravan/core/dtype.h"
#include "caravan/model/config.h"
#include "caravan/model/shard_plan.h"

namespace caravan::model {

/// Type of a matrix in a model of matrices of `dtype`. Where that is quantized, it is the type of
/// the text layers' projections; embedding and head are int8 then, because they decide most and
/// are read for few rows, and what only images need is bf16.
DType matrix_dtype(const TensorSpec& spec, DType dtype);

/// Why this model cannot be stored in a quantized type, each with the number at fault; or nothing.
std::vector<std::string> quantization_problems(const LlamaConfig& config);

/// One dataset. Its spec has the shape of the stored elements; int4 elements are pairs of inputs.
struct StoredPart {
  TensorSpec spec;
  DType dtype = DType::kFloat32;
  std::int64_t rows_per_row = 1;  // rows of the matrix that one stored row holds
  std::int64_t row_bytes() const { return spec.columns * element_bytes(dtype); }
  std::int64_t bytes() const { return spec.rows * row_bytes(); }
  /// Stored rows of whole bands of the matrix.
  Range rows_of(Range rows) const {
    return {rows.begin / rows_per_row, ceil_div(rows.end, rows_per_row)};
  }
};

/// The datasets of a tensor of `dtype`, one unless that is quantized.
std::vector<StoredPart> stored_parts(const TensorSpec& spec, DType dtype);

/// Those of a model of matrices of `dtype`, in file order; vectors as if they were float32.
std::vector<StoredPart> all_stored_parts(const LlamaConfig& config, DType dtype);

/// Bytes of weights that a rank holds of a model of matrices of `dtype` (vectors are float32 in
/// memory).
std::int64_t shard_weight_bytes(const LlamaConfig& config, const ShardShape& shape, DType dtype);

}  // namespace caravan::model
