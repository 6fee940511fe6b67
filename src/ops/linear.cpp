#include "caravan/ops/linear.h"

#include <algorithm>
#include <bit>

#include "caravan/core/error.h"
#include "caravan/core/standard_floats.h"
#include "cpu/kernel_table.h"
#include "tensor_check.h"

namespace caravan::ops {
namespace {

// Products below this many multiply-adds are done by the calling thread alone.
constexpr std::int64_t kWorthSharing = 32 * 1024;

/// Scratch is laid out in runs of whole cache lines.
std::int64_t aligned_floats(std::int64_t count) { return round_up(count, 16); }

template <typename Work>
void run(const Context& context, const LinearArgs& args, const Work& work) {
  if (args.rows * args.in * args.out < kWorthSharing) {
    work(ThreadShare{0, 1});
  } else {
    context.team().run(work);
  }
}

void multiply(const Context& context, Compute compute, LinearArgs& args) {
  if (args.rows == 0 || args.out == 0) return;
  const StandardFloats floats;
  const ProductKernels& kernels = context.products(compute);
  const std::int64_t packed = aligned_floats(kernels.packed_floats(args));
  const std::int64_t stacks = kernels.stack_floats(args) * context.team().size();
  // At least a line, so that kernels can form addresses from it.
  args.packed = context.scratch(packed + stacks + 16);
  args.stacks = args.packed + packed;
  if (packed > 0) run(context, args, [&](ThreadShare share) { kernels.pack(args, share); });
  run(context, args, [&](ThreadShare share) { kernels.multiply(args, share); });
}

void check_layout(const SliceLayout& layout, std::int64_t in) {
  std::int64_t column = 0;
  for (const Range& slice : layout.slices) {
    CARAVAN_ASSERT(slice.begin == column && slice.end >= slice.begin,
                   "linear_sliced: slice [{}, {}) must start at column {}", slice.begin, slice.end,
                   column);
    column = slice.end;
  }
  CARAVAN_ASSERT(column == in, "linear_sliced: the slices cover {} of {} columns", column, in);
  std::int64_t next = layout.first_slice;
  for (const SliceTree::Node& node : layout.nodes) {
    CARAVAN_ASSERT(node.slices.begin == next && !node.slices.empty(),
                   "linear_sliced: node of slices [{}, {}) must start at slice {}",
                   node.slices.begin, node.slices.end, next);
    next = node.slices.end;
  }
  CARAVAN_ASSERT(next == layout.first_slice + static_cast<std::int64_t>(layout.slices.size()),
                 "linear_sliced: the nodes end at slice {}, the slices start at {} and are {}",
                 next, layout.first_slice, layout.slices.size());
}

/// Tiles that can wait at a time: the binary digits of the slice number within its node.
std::int64_t stack_levels(const std::vector<SliceTree::Node>& nodes) {
  std::int64_t longest = 1;
  for (const SliceTree::Node& node : nodes) longest = std::max(longest, node.slices.size());
  return std::bit_width(static_cast<std::uint64_t>(longest - 1));
}

LinearArgs weight_args(const PackedWeight& weight) {
  LinearArgs args;
  args.in = weight.in_features();
  args.out = weight.out_features();
  args.weights = weight.data();
  args.dtype = weight.dtype();
  return args;
}

}  // namespace

void linear(const Context& context, const at::Tensor& x, const PackedWeight& weight,
            const at::Tensor& bias, at::Tensor& y) {
  const RowsView input = rows_view(x, -1, weight.in_features(), "linear", "x");
  const RowsView output = rows_view(y, input.rows, weight.out_features(), "linear", "y");
  check_no_overlap(input, output, "linear");
  const Range whole{0, weight.in_features()};
  const SliceTree::Node root{0, 0, {0, 1}};
  LinearArgs args = weight_args(weight);
  args.x = input.data;
  args.x_stride = input.stride;
  args.rows = input.rows;
  args.y = output.data;
  args.y_stride = output.stride;
  args.slices = &whole;
  args.num_slices = 1;
  args.nodes = &root;
  if (bias.defined()) args.bias = vector_data(bias, weight.out_features(), "linear", "bias");
  multiply(context, weight.compute(), args);
}

void linear_sliced(const Context& context, const at::Tensor& x, const PackedWeight& weight,
                   const SliceLayout& layout, at::Tensor& partials) {
  const RowsView input = rows_view(x, -1, weight.in_features(), "linear_sliced", "x");
  const auto num_nodes = static_cast<std::int64_t>(layout.nodes.size());
  CARAVAN_ASSERT(partials.defined() && partials.device().is_cpu() &&
                     partials.scalar_type() == at::kFloat && partials.is_contiguous() &&
                     partials.dim() == 3 && partials.size(0) == num_nodes &&
                     partials.size(1) == input.rows && partials.size(2) == weight.out_features(),
                 "linear_sliced: partials must be contiguous float32 [{}, {}, {}]", num_nodes,
                 input.rows, weight.out_features());
  check_layout(layout, weight.in_features());
  if (num_nodes == 0 || partials.numel() == 0) return;
  LinearArgs args = weight_args(weight);
  args.x = input.data;
  args.x_stride = input.stride;
  args.rows = input.rows;
  args.y = partials.data_ptr<float>();
  args.y_stride = weight.out_features();
  args.y_node_stride = input.rows * weight.out_features();
  const RowsView output{args.y, num_nodes * input.rows, args.out, args.y_stride};
  check_no_overlap(input, output, "linear_sliced");
  args.slices = layout.slices.data();
  args.num_slices = static_cast<std::int64_t>(layout.slices.size());
  args.nodes = layout.nodes.data();
  args.first_slice = layout.first_slice;
  args.stack_levels = stack_levels(layout.nodes);
  multiply(context, weight.compute(), args);
}

}  // namespace caravan::ops
