// Speed of the CPU kernels with the shapes of SmolLM2-135M, for each instruction set of this
// machine: all products of a decoder step (30 layers and the head, 269 MB of bf16 weights), and
// attention of one layer.
//
//   bench_ops --threads=2 [--benchmark_filter=linear/avx512] [other options of Google Benchmark]

#include <ATen/ops/full.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "caravan/core/machine_limits.h"
#include "caravan/ops/attention.h"
#include "caravan/ops/elementwise.h"
#include "caravan/ops/linear.h"

namespace {

using namespace caravan;
using namespace caravan::ops;

constexpr std::int64_t kLayers = 30;
constexpr std::int64_t kWidth = 576;
constexpr std::int64_t kHidden = 1536;
constexpr std::int64_t kVocabulary = 49152;
constexpr std::int64_t kHeadDim = 64;

/// One bf16 weight of small values.
PackedWeight make_weight(std::int64_t out, std::int64_t in) {
  PackedWeight weight(out, in, DType::kBFloat16);
  std::vector<std::uint16_t> row(static_cast<std::size_t>(in));
  for (std::size_t k = 0; k < row.size(); ++k) {
    row[k] = float_to_bf16(0.01F * static_cast<float>(k % 7));
  }
  for (std::int64_t o = 0; o < out; ++o) weight.set_output_rows(o, 1, row.data());
  return weight;
}

struct Model {
  std::vector<PackedWeight> weights;
  double flop_per_row = 0;
  double bytes = 0;
};

Model make_model() {
  Model model;
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    model.weights.push_back(make_weight(960, kWidth));
    model.weights.push_back(make_weight(kWidth, kWidth));
    model.weights.push_back(make_weight(2 * kHidden, kWidth));
    model.weights.push_back(make_weight(kWidth, kHidden));
  }
  model.weights.push_back(make_weight(kVocabulary, kWidth));
  for (const PackedWeight& weight : model.weights) {
    model.flop_per_row += 2.0 * static_cast<double>(weight.out_features() * weight.in_features());
    model.bytes += static_cast<double>(weight.bytes());
  }
  return model;
}

SliceLayout slices_of(std::int64_t in) {
  SliceLayout layout;
  for (std::int64_t k = 0; k < in; k += 64) layout.slices.push_back({k, k + 64});
  const SliceTree tree(static_cast<std::int64_t>(layout.slices.size()));
  layout.nodes = tree.cover({0, tree.num_slices()});
  return layout;
}

/// Products of a whole step. As in the decoder, the head sees at most 32 rows and the row-parallel
/// products (outputs as wide as the model) are sliced.
void bench_linear(benchmark::State& state, ThreadTeam& team, Isa isa, const Model& model) {
  const std::int64_t rows = state.range(0);
  const Context context(team, isa);
  const at::Tensor x = at::full({rows, kHidden}, 0.5, at::kFloat);
  at::Tensor y = at::full({rows, 2 * kHidden}, 0.0, at::kFloat);
  at::Tensor logits = at::full({std::min<std::int64_t>(rows, 32), kVocabulary}, 0.0, at::kFloat);
  at::Tensor partials = at::full({1, rows, kWidth}, 0.0, at::kFloat);
  const SliceLayout narrow = slices_of(kWidth);
  const SliceLayout wide = slices_of(kHidden);
  double flop = 0;
  for (const PackedWeight& weight : model.weights) {
    const std::int64_t used = weight.out_features() == kVocabulary ? logits.size(0) : rows;
    flop += 2.0 * static_cast<double>(used * weight.out_features() * weight.in_features());
  }
  for (auto _ : state) {
    for (const PackedWeight& weight : model.weights) {
      const at::Tensor input = x.narrow(1, 0, weight.in_features());
      if (weight.out_features() == kWidth) {
        linear_sliced(context, input, weight, weight.in_features() == kWidth ? narrow : wide,
                      partials);
      } else if (weight.out_features() == kVocabulary) {
        linear(context, input.narrow(0, 0, logits.size(0)), weight, {}, logits);
      } else {
        at::Tensor output = y.narrow(1, 0, weight.out_features());
        linear(context, input, weight, {}, output);
      }
    }
  }
  state.counters["GFLOP/s"] =
      benchmark::Counter(flop * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["GB/s"] =
      benchmark::Counter(model.bytes * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

/// One layer: range(0) sequences, each with range(1) positions of which the last range(2) are new.
void bench_attention(benchmark::State& state, ThreadTeam& team, Isa isa) {
  const std::int64_t num_sequences = state.range(0);
  const std::int64_t length = state.range(1);
  const std::int64_t fresh = state.range(2);
  const Context context(team, isa);
  const HeadMap heads{9, 3, {0, 0, 0, 1, 1, 1, 2, 2, 2}};
  const std::int64_t blocks = ceil_div(length, KvPool::kBlockTokens);
  KvPool pool({1, blocks * num_sequences, 3, kHeadDim});
  std::fill_n(pool.keys(0), pool.key_block_stride() * blocks * num_sequences, 0.25F);
  std::vector<std::int32_t> table(static_cast<std::size_t>(blocks * num_sequences));
  std::iota(table.begin(), table.end(), 0);
  std::vector<SequenceRows> sequences;
  for (std::int64_t i = 0; i < num_sequences; ++i) {
    sequences.push_back({i * fresh, fresh, length - fresh,
                         std::span(table).subspan(static_cast<std::size_t>(i * blocks),
                                                  static_cast<std::size_t>(blocks))});
  }
  const at::Tensor qkv = at::full({num_sequences * fresh, 15 * kHeadDim}, 0.1, at::kFloat);
  at::Tensor out = at::full({num_sequences * fresh, 9 * kHeadDim}, 0.0, at::kFloat);
  for (auto _ : state) attention(context, qkv, heads, sequences, pool, 0, out);
  const double pairs = static_cast<double>(num_sequences) *
                       (static_cast<double>(fresh) * static_cast<double>(length - fresh) +
                        0.5 * static_cast<double>(fresh) * static_cast<double>(fresh + 1));
  state.counters["GFLOP/s"] = benchmark::Counter(9 * kHeadDim * 4e-9 * pairs,
                                                 benchmark::Counter::kIsIterationInvariantRate);
  state.counters["GB/s"] =
      benchmark::Counter(static_cast<double>(num_sequences * length * 3 * kHeadDim * 8) * 1e-9,
                         benchmark::Counter::kIsIterationInvariantRate);
}

void bench_swiglu(benchmark::State& state, ThreadTeam& team, Isa isa) {
  const Context context(team, isa);
  const at::Tensor gate_up = at::full({state.range(0), 2 * kHidden}, 0.3, at::kFloat);
  at::Tensor y = at::full({state.range(0), kHidden}, 0.0, at::kFloat);
  for (auto _ : state) swiglu(context, gate_up, y);
}

void bench_rms_norm(benchmark::State& state, ThreadTeam& team, Isa isa) {
  const Context context(team, isa);
  const at::Tensor x = at::full({state.range(0), kWidth}, 0.3, at::kFloat);
  const at::Tensor weight = at::full({kWidth}, 1.0, at::kFloat);
  at::Tensor y = at::full({state.range(0), kWidth}, 0.0, at::kFloat);
  for (auto _ : state) rms_norm(context, x, weight, 1e-5F, y);
}

void register_all(ThreadTeam& team, const Model& model) {
  const auto add = [](const std::string& name, auto function) {
    return benchmark::RegisterBenchmark(name.c_str(), function)->UseRealTime();
  };
  for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512}) {
    if (!isa_supported(isa)) continue;
    const std::string name(isa_name(isa));
    auto* linear_bench = add("linear/" + name, [&team, &model, isa](benchmark::State& state) {
      bench_linear(state, team, isa, model);
    });
    linear_bench->Unit(benchmark::kMillisecond)->Arg(1)->Arg(2)->Arg(4)->Arg(8)->Arg(16)->Arg(32);
    if (isa != Isa::kGeneric) linear_bench->Arg(64)->Arg(128)->Arg(512);
    add("attention/" + name,
        [&team, isa](benchmark::State& state) { bench_attention(state, team, isa); })
        ->Unit(benchmark::kMicrosecond)
        ->Args({1, 150, 1})
        ->Args({1, 1024, 1})
        ->Args({8, 512, 1})
        ->Args({32, 512, 1})
        ->Args({64, 138, 1})
        ->Args({1, 1024, 512})
        ->Args({1, 1024, 1024});
    add("swiglu/" + name, [&team, isa](benchmark::State& state) { bench_swiglu(state, team, isa); })
        ->Unit(benchmark::kMicrosecond)
        ->Arg(1)
        ->Arg(64);
    add("rms_norm/" + name,
        [&team, isa](benchmark::State& state) { bench_rms_norm(state, team, isa); })
        ->Unit(benchmark::kMicrosecond)
        ->Arg(1)
        ->Arg(64);
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  int threads = usable_cpus();
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument(argv[i]);
    constexpr std::string_view kThreads = "--threads=";
    const std::string_view value =
        argument.starts_with(kThreads) ? argument.substr(kThreads.size()) : std::string_view();
    if (value.empty() ||
        std::from_chars(value.data(), value.data() + value.size(), threads).ec != std::errc{}) {
      std::cerr << "unknown argument " << argument << "; known: --threads=N and --benchmark_...\n";
      return 64;
    }
  }
  ThreadTeam team(threads);
  const Model model = make_model();
  register_all(team, model);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
