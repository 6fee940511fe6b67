#pragma once
// Filling panels of quantized weights from rows or columns, and reading them back. Private to
// src/ops.

#include <cstdint>

#include "caravan/core/partition.h"
#include "caravan/ops/packed_weight.h"

namespace caravan::ops {

/// Bytes of a panel. @pre quantized, whole groups
std::int64_t quantized_panel_bytes(DType dtype, std::int64_t in);

/// Contracts: PackedWeight::set_output_rows, set_input_rows, copy_row.
void fill_quantized_rows(DType dtype, void* panels, std::int64_t in, Range outputs,
                         const QuantizedRows& rows);
void fill_quantized_columns(DType dtype, void* panels, std::int64_t in, std::int64_t out_features,
                            Range columns, const QuantizedRows& rows);
void copy_quantized_row(DType dtype, const void* panels, std::int64_t in, std::int64_t out,
                        float* target);

}  // namespace caravan::ops
