// Speed of the products of a decoder's layers for each kind of computing, beside what this machine
// reaches at most: tile instructions (or none), and reading memory, both measured in the same run.
//
//   bench_products [--threads N] [--compute fp32|bf16] [--weights bf16|int8|int4] [--isa NAME]
//                  [--rows N]
//
// For each model: one line for a number of rows.

#include <ATen/ops/full.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

#include "caravan/core/clock.h"
#include "caravan/core/machine_limits.h"
#include "caravan/ops/linear.h"
#include "caravan/ops/peaks.h"

namespace {

using namespace caravan;
using namespace caravan::ops;

struct Shape {
  const char* name;
  std::int64_t width;
  std::int64_t query_and_kv;
  std::int64_t query;
  std::int64_t head_dim;
  std::int64_t hidden;
  std::int64_t layers;  // measured: enough that no cache holds them
};

constexpr Shape kShapes[] = {{"SmolLM2-135M", 576, 960, 576, 64, 1536, 30},
                             {"Llama-3.2-1B", 2048, 3072, 2048, 64, 8192, 3}};

/// Weights whose values do not matter.
PackedWeight make_quantized(std::int64_t out, std::int64_t in, DType dtype) {
  PackedWeight weight(out, in, dtype);
  const std::vector<std::uint8_t> codes(static_cast<std::size_t>(in), 0x35);
  const std::vector<std::uint16_t> scales(codes.size() / kQuantGroup, float_to_fp16(0.01F));
  for (std::int64_t o = 0; o < out; ++o) {
    weight.set_output_rows(o, 1, QuantizedRows{codes.data(), scales.data(), scales.data()});
  }
  return weight;
}

PackedWeight make_weight(std::int64_t out, std::int64_t in, Compute compute, DType dtype) {
  if (is_quantized(dtype)) return make_quantized(out, in, dtype);
  PackedWeight weight(out, in, DType::kBFloat16, compute);
  std::vector<std::uint16_t> row(static_cast<std::size_t>(in));
  for (std::size_t k = 0; k < row.size(); ++k) {
    row[k] = float_to_bf16(0.01F * static_cast<float>(k % 7));
  }
  for (std::int64_t o = 0; o < out; ++o) weight.set_output_rows(o, 1, row.data());
  return weight;
}

struct Layer {
  PackedWeight qkv;
  PackedWeight output;
  PackedWeight gate_up;
  PackedWeight down;
};

SliceLayout slices_of(std::int64_t in, std::int64_t width) {
  SliceLayout layout;
  for (std::int64_t k = 0; k < in; k += width) {
    layout.slices.push_back({k, std::min(k + width, in)});
  }
  const SliceTree tree(static_cast<std::int64_t>(layout.slices.size()));
  layout.nodes = tree.cover({0, tree.num_slices()});
  return layout;
}

double elements_of(const PackedWeight& weight) {
  return static_cast<double>(weight.out_features() * weight.in_features());
}

void measure(const Context& context, const Shape& shape, DType dtype,
             const std::vector<std::int64_t>& all_rows) {
  std::vector<Layer> layers;
  const Compute compute = context.compute();
  double weights = 0;
  double element_bytes = 2;
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    layers.push_back({make_weight(shape.query_and_kv, shape.width, compute, dtype),
                      make_weight(shape.width, shape.query, compute, dtype),
                      make_weight(2 * shape.hidden, shape.width, compute, dtype),
                      make_weight(shape.width, shape.hidden, compute, dtype)});
    const Layer& layer = layers.back();
    for (const PackedWeight* weight : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) {
      weights += elements_of(*weight);
    }
    element_bytes = static_cast<double>(layer.qkv.bytes()) / elements_of(layer.qkv);
  }
  const SliceLayout heads = slices_of(shape.query, shape.head_dim);
  const SliceLayout columns = slices_of(shape.hidden, 64);
  std::printf(
      "%s, %d thread(s), %s weights, %s computing, %s kernels: GFLOP/s (GB/s) of qkv, output, gate "
      "and "
      "up, down, all\n",
      shape.name, context.team().size(), dtype_name(dtype).data(), compute_name(compute).data(),
      isa_name(context.isa()).data());
  for (const std::int64_t rows : all_rows) {
    const at::Tensor x = at::full({rows, shape.hidden}, 0.5, at::kFloat);
    at::Tensor y = at::full({rows, 2 * shape.hidden}, 0.0, at::kFloat);
    at::Tensor partials = at::full({1, rows, shape.width}, 0.0, at::kFloat);
    const auto plain = [&](const PackedWeight& weight) {
      at::Tensor out = y.narrow(1, 0, weight.out_features());
      linear(context, x.narrow(1, 0, weight.in_features()), weight, {}, out);
    };
    const auto sliced = [&](const PackedWeight& weight, const SliceLayout& layout) {
      linear_sliced(context, x.narrow(1, 0, weight.in_features()), weight, layout, partials);
    };
    double all_seconds = 0;
    std::printf("%5ld rows", static_cast<long>(rows));
    const auto report = [&](double elements, double seconds) {
      std::printf("  %7.0f (%5.1f)", 2 * elements * static_cast<double>(rows) / seconds * 1e-9,
                  element_bytes * elements / seconds * 1e-9);
    };
    // Layer after layer, so that no weight is in a near cache; of each the best of the passes, so
    // that other work on the machine counts little.
    const auto time = [&](PackedWeight Layer::*member, const auto& product) {
      std::vector<double> best(layers.size(), 1e9);
      const Stopwatch all;
      for (int pass = 0; pass < 5 || (pass < 1000 && all.seconds() < 1); ++pass) {
        for (std::size_t i = 0; i < layers.size(); ++i) {
          const Stopwatch watch;
          product(layers[i].*member);
          best[i] = std::min(best[i], watch.seconds());
        }
      }
      const double seconds = std::accumulate(best.begin(), best.end(), 0.0);
      double elements = 0;
      for (const Layer& layer : layers) {
        elements += elements_of(layer.*member);
      }
      report(elements, seconds);
      all_seconds += seconds;
    };
    time(&Layer::qkv, plain);
    time(&Layer::output, [&](const PackedWeight& weight) { sliced(weight, heads); });
    time(&Layer::gate_up, plain);
    time(&Layer::down, [&](const PackedWeight& weight) { sliced(weight, columns); });
    report(weights, all_seconds);
    std::printf("\n");
    std::fflush(stdout);
  }
}

std::optional<Isa> named_isa(std::string_view name) {
  for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (name == isa_name(isa)) return isa;
  }
  return std::nullopt;
}

}  // namespace

int main(int argc, char** argv) {
  int threads = usable_cpus();
  std::int64_t rows = 0;
  std::vector<Compute> computes = {Compute::kFloat32, Compute::kBFloat16};
  DType dtype = DType::kBFloat16;
  std::optional<Isa> isa;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name(argv[i]);
    const std::string_view value(i + 1 < argc ? argv[i + 1] : "");
    const auto number = [&](auto& target) {
      return std::from_chars(value.data(), value.data() + value.size(), target).ec == std::errc{};
    };
    bool good = false;
    if (name == "--threads") good = number(threads);
    if (name == "--rows") good = number(rows);
    if (name == "--compute") {
      good = value == "fp32" || value == "bf16";
      computes = {value == "fp32" ? Compute::kFloat32 : Compute::kBFloat16};
    }
    if (name == "--weights") {
      good = value == "bf16" || value == "int8" || value == "int4";
      dtype = parse_dtype(value).value_or(dtype);
    }
    if (name == "--isa") good = (isa = named_isa(value)).has_value();
    if (!good) {
      std::fprintf(
          stderr,
          "%s %s: known are --threads N, --compute fp32|bf16, --weights bf16|int8|int4, --isa "
          "NAME, --rows N\n",
          argv[i], std::string(value).c_str());
      return 64;
    }
  }
  ThreadTeam team(threads);
  const Peaks peaks = measure_peaks(Context(team, isa.value_or(detect_isa(Compute::kBFloat16))));
  std::printf("peaks: reading %.1f GB/s, FMA %.0f GFLOP/s, tiles %.0f GFLOP/s (0: none)\n",
              peaks.read_bytes_per_second * 1e-9, peaks.fma_flop_per_second * 1e-9,
              peaks.tile_flop_per_second * 1e-9);
  const std::vector<std::int64_t> all_rows =
      rows > 0 ? std::vector{rows} : std::vector<std::int64_t>{1, 8, 32, 64, 512};
  for (const Shape& shape : kShapes) {
    for (const Compute compute : computes) {
      if (is_quantized(dtype) && compute == Compute::kBFloat16) continue;
      measure(Context(team, isa.value_or(detect_isa(compute)), compute), shape, dtype, all_rows);
    }
  }
  return 0;
}
