#include "caravan/ops/vision_rows.h"

#include <algorithm>

#include "caravan/core/error.h"
#include "cpu/kernel_table.h"
#include "tensor_check.h"

namespace caravan::ops {
void layer_norm(const Context& context, const at::Tensor& x, const at::Tensor& weight,
                const at::Tensor& bias, float epsilon, at::Tensor& y) {
  const RowsView input = rows_view(x, -1, -1, "layer_norm", "x");
  const RowsView output = rows_view(y, input.rows, input.width, "layer_norm", "y");
  const float* const scale = vector_data(weight, input.width, "layer_norm", "weight");
  const float* const shift = vector_data(bias, input.width, "layer_norm", "bias");
  if (input.width == 0) return;
  for_items(context, input.rows, input.width / 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      context.kernels().layer_norm(input.row(n), scale, shift, epsilon, input.width, output.row(n));
    }
  });
}

void rms_norm_heads(const Context& context, at::Tensor& x, const at::Tensor& weight,
                    float epsilon) {
  const RowsView rows = rows_view(x, -1, -1, "rms_norm_heads", "x");
  const float* const scale = vector_data(weight, -1, "rms_norm_heads", "weight");
  const std::int64_t d = weight.numel();
  CARAVAN_ASSERT(d > 0 && rows.width % d == 0, "rms_norm_heads: {} columns in heads of {}",
                 rows.width, d);
  if (rows.width == 0) return;
  for_items(context, rows.rows, rows.width / 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      for (std::int64_t column = 0; column < rows.width; column += d) {
        float* const head = rows.row(n) + column;
        context.kernels().rms_norm(head, scale, epsilon, d, head);
      }
    }
  });
}

void gelu(const Context& context, at::Tensor& x) {
  const RowsView rows = rows_view(x, -1, -1, "gelu", "x");
  if (rows.width == 0) return;
  for_items(context, rows.rows, rows.width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      context.kernels().gelu(rows.row(n), rows.width, rows.row(n));
    }
  });
}

void add_scaled(const Context& context, const at::Tensor& y, const at::Tensor& bias, float scale,
                at::Tensor& x) {
  const RowsView target = rows_view(x, -1, -1, "add_scaled", "x");
  const RowsView source = rows_view(y, target.rows, target.width, "add_scaled", "y");
  const float* const shift =
      bias.defined() ? vector_data(bias, target.width, "add_scaled", "bias") : nullptr;
  if (target.width == 0) return;
  for_items(context, target.rows, target.width / 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      context.kernels().add_scaled(source.row(n), shift, scale, target.width, target.row(n));
    }
  });
}

void scatter_rows(const Context& context, const at::Tensor& y, std::span<const std::int32_t> rows,
                  at::Tensor& x) {
  const RowsView target = rows_view(x, -1, -1, "scatter_rows", "x");
  const auto count = static_cast<std::int64_t>(rows.size());
  const RowsView source = rows_view(y, count, target.width, "scatter_rows", "y");
  for (const std::int32_t row : rows) {
    CARAVAN_ASSERT(row >= 0 && row < target.rows, "scatter_rows: row {} of {}", row, target.rows);
  }
  for_items(context, count, target.width / 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      std::copy_n(source.row(n), source.width, target.row(rows[static_cast<std::size_t>(n)]));
    }
  });
}

}  // namespace caravan::ops
