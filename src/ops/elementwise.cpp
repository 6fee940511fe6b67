#include "caravan/ops/elementwise.h"

#include <algorithm>
#include <cstring>

#include "caravan/core/error.h"
#include "cpu/kernel_table.h"
#include "tensor_check.h"

namespace caravan::ops {
namespace {

void copy_embedding(const PackedWeight& table, std::int64_t token, float* x) {
  table.copy_row(token, x);
  // Adding zero turns -0 into +0.
  for (std::int64_t k = 0; k < table.in_features(); ++k) x[k] += 0.0F;
}

}  // namespace

void rms_norm(const Context& context, const at::Tensor& x, const at::Tensor& weight, float epsilon,
              at::Tensor& y) {
  const RowsView input = rows_view(x, -1, -1, "rms_norm", "x");
  const RowsView output = rows_view(y, input.rows, input.width, "rms_norm", "y");
  const float* const scale = vector_data(weight, input.width, "rms_norm", "weight");
  if (input.width == 0) return;
  for_items(context, input.rows, input.width / 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      context.kernels().rms_norm(input.row(n), scale, epsilon, input.width, output.row(n));
    }
  });
}

void swiglu(const Context& context, const at::Tensor& gate_up, at::Tensor& y) {
  const RowsView output = rows_view(y, -1, -1, "swiglu", "y");
  const RowsView input = rows_view(gate_up, output.rows, 2 * output.width, "swiglu", "gate_up");
  for_items(context, output.rows, output.width / 2, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      context.kernels().swiglu(input.row(n), input.row(n) + output.width, output.width,
                               output.row(n));
    }
  });
}

void add_bias(const Context& context, const at::Tensor& bias, at::Tensor& x) {
  const RowsView rows = rows_view(x, -1, -1, "add_bias", "x");
  const float* const added = vector_data(bias, rows.width, "add_bias", "bias");
  for_items(context, rows.rows, rows.width / 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      float* const row = rows.row(n);
      for (std::int64_t i = 0; i < rows.width; ++i) row[i] += added[i];
    }
  });
}

void embedding(const Context& context, std::span<const std::int32_t> tokens,
               const PackedWeight& table, Range shard, at::Tensor& x) {
  const auto rows = static_cast<std::int64_t>(tokens.size());
  const RowsView output = rows_view(x, rows, table.in_features(), "embedding", "x");
  CARAVAN_ASSERT(shard.size() == table.out_features(),
                 "embedding: shard [{}, {}) of a table with {} rows", shard.begin, shard.end,
                 table.out_features());
  for_items(context, rows, output.width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const std::int64_t token = tokens[static_cast<std::size_t>(n)];
      if (shard.contains(token)) {
        copy_embedding(table, token - shard.begin, output.row(n));
      } else {
        std::fill_n(output.row(n), output.width, 0.0F);
      }
    }
  });
}

void gather_rows(const Context& context, const at::Tensor& x, std::span<const std::int32_t> rows,
                 at::Tensor& y) {
  const RowsView input = rows_view(x, -1, -1, "gather_rows", "x");
  const auto count = static_cast<std::int64_t>(rows.size());
  const RowsView output = rows_view(y, count, input.width, "gather_rows", "y");
  for (const std::int32_t row : rows) {
    CARAVAN_ASSERT(row >= 0 && row < input.rows, "gather_rows: row {} of {}", row, input.rows);
  }
  for_items(context, count, input.width / 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      std::copy_n(input.row(rows[static_cast<std::size_t>(n)]), input.width, output.row(n));
    }
  });
}

void argmax(const Context& context, const at::Tensor& logits, std::span<ArgMax> result) {
  const auto rows = static_cast<std::int64_t>(result.size());
  const RowsView input = rows_view(logits, rows, -1, "argmax", "logits");
  for_items(context, rows, input.width / 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      ArgMax& best = result[static_cast<std::size_t>(n)];
      best = {};
      if (input.width > 0) {
        context.kernels().argmax(input.row(n), input.width, &best.value, &best.index);
      }
    }
  });
}

}  // namespace caravan::ops
