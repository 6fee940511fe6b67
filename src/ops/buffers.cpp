#include "caravan/ops/buffers.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "caravan/core/error.h"

namespace caravan::ops {

at::Tensor make_buffer(const Context& /*context*/, at::IntArrayRef sizes) {
  return at::empty(sizes, at::kFloat);
}

void set_zero(const Context& /*context*/, at::Tensor& x) {
  CARAVAN_ASSERT(x.is_cpu() && x.is_contiguous(), "set_zero needs a contiguous tensor of the CPU");
  std::fill_n(x.data_ptr<float>(), x.numel(), 0.0F);
}

void copy_row(const Context& /*context*/, const at::Tensor& source, std::int64_t from,
              at::Tensor& target, std::int64_t to) {
  CARAVAN_ASSERT(source.size(1) == target.size(1) && source.stride(1) == 1 && target.stride(1) == 1,
                 "copy_row between rows of {} and {} columns", source.size(1), target.size(1));
  CARAVAN_ASSERT(from >= 0 && from < source.size(0) && to >= 0 && to < target.size(0),
                 "copy_row from row {} of {} to row {} of {}", from, source.size(0), to,
                 target.size(0));
  std::copy_n(source.const_data_ptr<float>() + from * source.stride(0), source.size(1),
              target.data_ptr<float>() + to * target.stride(0));
}

at::Tensor to_host(const Context& /*context*/, const at::Tensor& x) { return x; }

}  // namespace caravan::ops
