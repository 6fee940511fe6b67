#include "support/reference_products.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <bit>
#include <cmath>

#include "caravan/ops/linear.h"

namespace caravan::testing {
namespace {

float chain_of(ops::Compute compute, const float* x, const float* weights, Range columns) {
  return compute == ops::Compute::kFloat32 ? chain(x, weights, columns)
                                           : bf16_chain(x, weights, columns);
}

constexpr float kLeastNormal = 0x1p-126F;

float zero_subnormal(float value) {
  return std::fabs(value) < kLeastNormal ? std::copysign(0.0F, value) : value;
}

}  // namespace

float chain(const float* x, const float* weights, Range columns) {
  float sum = 0;
  for (std::int64_t k = columns.begin; k < columns.end; ++k) sum = std::fma(x[k], weights[k], sum);
  return sum;
}

float flushing_fma(float a, float b, float c) {
  a = zero_subnormal(a);
  b = zero_subnormal(b);
  c = zero_subnormal(c);
  const float result = std::fma(a, b, c);
  if (std::fabs(result) != kLeastNormal) return zero_subnormal(result);
  // Rounded up to the least normal number? It counts as subnormal if the exact value would round
  // to less with an exponent one lower. Its halves are exact: product, and sum with its error.
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double addend = c;
  const double sum = product + addend;
  const double part = sum - product;
  const double error = (product - (sum - part)) + (addend - part);
  constexpr double kLimit = 0x1p-126 * (1 - 0x1p-25);
  const double above = std::fabs(sum) - kLimit + std::copysign(1.0, sum) * error;
  return above < 0 ? std::copysign(0.0F, result) : result;
}

float flushing_add(float a, float b) { return flushing_fma(a, 1.0F, b); }

float bf16_chain(const float* x, const float* weights, Range columns) {
  float sum = 0;
  for (std::int64_t run = columns.begin; run < columns.end; run += 32) {
    float chains_of_run[2] = {0, 0};
    for (std::int64_t k = run; k < run + 32; ++k) {
      const bool exists = k < columns.end;
      const float input = exists ? bf16_to_float(float_to_bf16(x[k])) : 0.0F;
      float& sum_of_parity = chains_of_run[(k - run) % 2];
      sum_of_parity = flushing_fma(input, exists ? weights[k] : 0.0F, sum_of_parity);
    }
    sum = flushing_add(sum, flushing_add(chains_of_run[0], chains_of_run[1]));
  }
  return sum;
}

float tree_sum(ops::Compute compute, const float* x, const float* weights,
               const std::vector<Range>& slices, Range node) {
  if (node.size() == 1) {
    return chain_of(compute, x, weights, slices[static_cast<std::size_t>(node.begin)]);
  }
  // The left child is the largest power of two below the size.
  const auto half =
      static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(node.size() - 1)));
  return tree_sum(compute, x, weights, slices, {node.begin, node.begin + half}) +
         tree_sum(compute, x, weights, slices, {node.begin + half, node.end});
}

at::Tensor run_linear(const ops::Context& context, const at::Tensor& x, const TestWeight& weight,
                      const at::Tensor& bias) {
  // NaN and a wider row show elements that are not written, or written where they should not be.
  at::Tensor wide = at::full({x.size(0), weight.out + 3}, std::nan(""), at::kFloat);
  at::Tensor y = wide.narrow(1, 0, weight.out);
  ops::linear(context, x, weight.packed, bias, y);
  EXPECT_TRUE(wide.narrow(1, weight.out, 3).isnan().all().item<bool>());
  return y;
}

at::Tensor chains(const at::Tensor& x, const TestWeight& weight) {
  at::Tensor y = at::empty({x.size(0), weight.out}, at::kFloat);
  const at::Tensor rows = x.contiguous();
  for (std::int64_t n = 0; n < x.size(0); ++n) {
    for (std::int64_t o = 0; o < weight.out; ++o) {
      y.data_ptr<float>()[n * weight.out + o] =
          chain_of(weight.packed.compute(), rows.const_data_ptr<float>() + n * weight.in,
                   weight.dense.data() + o * weight.in, {0, weight.in});
    }
  }
  return y;
}

std::vector<Range> slices_of(const std::vector<std::int64_t>& widths) {
  std::vector<Range> slices;
  std::int64_t begin = 0;
  for (const std::int64_t width : widths) {
    slices.push_back({begin, begin + width});
    begin += width;
  }
  return slices;
}

at::Tensor sum_over_ranks(const ops::Context& context, const at::Tensor& x,
                          const TestWeight& weight, const std::vector<Range>& slices,
                          const std::vector<Range>& owned) {
  const SliceTree tree(static_cast<std::int64_t>(slices.size()));
  std::vector<SliceTree::Node> nodes;
  std::vector<at::Tensor> values;
  for (const Range& mine : owned) {
    if (mine.empty()) continue;
    const std::int64_t first = slices[static_cast<std::size_t>(mine.begin)].begin;
    const std::int64_t last = slices[static_cast<std::size_t>(mine.end - 1)].end;
    ops::SliceLayout layout;
    layout.first_slice = mine.begin;
    layout.nodes = tree.cover(mine);
    for (std::int64_t s = mine.begin; s < mine.end; ++s) {
      const Range& slice = slices[static_cast<std::size_t>(s)];
      layout.slices.push_back({slice.begin - first, slice.end - first});
    }
    ops::PackedWeight packed(weight.out, last - first, weight.packed.dtype(),
                             weight.packed.compute());
    if (is_quantized(packed.dtype())) {
      packed.set_input_rows(0, last - first, weight.quantized.inputs({first, last}).rows());
    } else {
      std::vector<float> columns;
      for (std::int64_t o = 0; o < weight.out; ++o) {
        const auto row = weight.dense.begin() + o * weight.in;
        columns.insert(columns.end(), row + first, row + last);
      }
      packed.set_output_rows(0, weight.out, encode(columns, packed.dtype()).data());
    }
    const auto num_nodes = static_cast<std::int64_t>(layout.nodes.size());
    at::Tensor partials = at::full({num_nodes, x.size(0), weight.out}, std::nan(""), at::kFloat);
    ops::linear_sliced(context, x.narrow(1, first, last - first), packed, layout, partials);
    for (std::int64_t i = 0; i < num_nodes; ++i) values.push_back(partials[i]);
    nodes.insert(nodes.end(), layout.nodes.begin(), layout.nodes.end());
  }
  for (const SliceTree::Addition& step : tree.finish(nodes)) {
    values[static_cast<std::size_t>(step.target)].add_(
        values[static_cast<std::size_t>(step.source)]);
  }
  return values[0];
}

at::Tensor trees(const at::Tensor& x, const TestWeight& weight, const std::vector<Range>& slices) {
  at::Tensor y = at::empty({x.size(0), weight.out}, at::kFloat);
  const Range all{0, static_cast<std::int64_t>(slices.size())};
  for (std::int64_t n = 0; n < x.size(0); ++n) {
    for (std::int64_t o = 0; o < weight.out; ++o) {
      y.data_ptr<float>()[n * weight.out + o] =
          tree_sum(weight.packed.compute(), x.const_data_ptr<float>() + n * weight.in,
                   weight.dense.data() + o * weight.in, slices, all);
    }
  }
  return y;
}

}  // namespace caravan::testing
