#pragma once
// Checks and views of the float32 tensors that operations take. Private to src/ops.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "caravan/core/partition.h"
#include "caravan/core/standard_floats.h"
#include "caravan/core/thread_team.h"
#include "caravan/ops/context.h"

namespace caravan::ops {

/// A two-dimensional float32 CPU tensor whose rows are contiguous.
struct RowsView {
  float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t stride = 0;  // floats from one row to the next
  float* row(std::int64_t index) const { return data + index * stride; }
};

/// @throws InternalError naming `operation` and `name` unless the tensor is [rows, width] float32
/// on the CPU with contiguous rows. A negative `rows` or `width` accepts any.
RowsView rows_view(const at::Tensor& tensor, std::int64_t rows, std::int64_t width,
                   const char* operation, const char* name);

/// The elements of a vector.
/// @throws InternalError naming `operation` and `name` unless it is `count` contiguous float32
/// values on the CPU. A negative `count` accepts any.
const float* vector_data(const at::Tensor& tensor, std::int64_t count, const char* operation,
                         const char* name);

/// @throws InternalError unless the two share no element.
void check_no_overlap(const RowsView& a, const RowsView& b, const char* operation);

/// Runs `work(begin, end)` over [0, items), shared among the threads when it is worth waking them:
/// `item_cost` is about nanoseconds per item.
template <typename Work>
void for_items(const Context& context, std::int64_t items, std::int64_t item_cost,
               const Work& work) {
  constexpr std::int64_t kWorthSharing = 4000;
  if (items <= 0) return;
  const StandardFloats floats;
  if (items == 1 || items * item_cost < kWorthSharing) {
    work(std::int64_t{0}, items);
    return;
  }
  context.team().run([&](ThreadShare share) {
    const Range part = split_evenly(items, share.count, share.index);
    if (!part.empty()) work(part.begin, part.end);
  });
}

}  // namespace caravan::ops
