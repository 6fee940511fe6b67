#include "tensor_check.h"

#include <algorithm>

#include "caravan/core/error.h"

namespace caravan::ops {

RowsView rows_view(const at::Tensor& tensor, std::int64_t rows, std::int64_t width,
                   const char* operation, const char* name) {
  CARAVAN_ASSERT(tensor.defined() && tensor.device().is_cpu() &&
                     tensor.scalar_type() == at::kFloat && tensor.dim() == 2,
                 "{}: {} must be a float32 CPU tensor with two dimensions", operation, name);
  CARAVAN_ASSERT((rows < 0 || tensor.size(0) == rows) && (width < 0 || tensor.size(1) == width),
                 "{}: {} must be [{}, {}] (-1: any), found [{}, {}]", operation, name, rows, width,
                 tensor.size(0), tensor.size(1));
  CARAVAN_ASSERT(tensor.size(1) <= 1 || tensor.stride(1) == 1,
                 "{}: rows of {} must be contiguous, found stride {}", operation, name,
                 tensor.stride(1));
  RowsView view{nullptr, tensor.size(0), tensor.size(1), tensor.stride(0)};
  if (view.rows > 0 && view.width > 0) view.data = tensor.data_ptr<float>();
  return view;
}

const float* vector_data(const at::Tensor& tensor, std::int64_t count, const char* operation,
                         const char* name) {
  CARAVAN_ASSERT(tensor.defined() && tensor.device().is_cpu() &&
                     tensor.scalar_type() == at::kFloat && tensor.is_contiguous() &&
                     (count < 0 || tensor.numel() == count),
                 "{}: {} must be {} contiguous float32 values (-1: any)", operation, name, count);
  return tensor.const_data_ptr<float>();
}

void check_no_overlap(const RowsView& a, const RowsView& b, const char* operation) {
  if (a.data == nullptr || b.data == nullptr) return;
  const float* const a_end = a.row(a.rows - 1) + a.width;
  const float* const b_end = b.row(b.rows - 1) + b.width;
  CARAVAN_ASSERT(a_end <= b.data || b_end <= a.data, "{}: the result must not overlap the operand",
                 operation);
}

}  // namespace caravan::ops
