#include "caravan/model/decoder.h"

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "caravan/core/error.h"
#include "caravan/ops/attention.h"
#include "caravan/ops/linear.h"
#include "decoder_weights.h"

namespace caravan::model {
namespace {

/// Rows of attention scores that a thread works on at a time, at most (ops/attention.h).
constexpr std::int64_t kScoreRows = 12;

std::vector<Range> owned_heads(const LlamaConfig& config, int num_ranks) {
  std::vector<Range> owned;
  for (const ShardShape& shape : all_shard_shapes(config, num_ranks)) {
    owned.push_back(shape.query_heads);
  }
  return owned;
}

std::vector<Range> owned_ffn_slices(const LlamaConfig& config, int num_ranks) {
  std::vector<Range> owned;
  for (const ShardShape& shape : all_shard_shapes(config, num_ranks)) {
    owned.push_back({ceil_div(shape.ffn_columns.begin, kBandColumns),
                     ceil_div(shape.ffn_columns.end, kBandColumns)});
  }
  return owned;
}

/// Slices of `width` columns that this rank owns, and the tree nodes to make of them.
ops::SliceLayout slice_layout(const parallel::SlicedSum& sum, Range slices, std::int64_t width,
                              std::int64_t local_columns, int rank) {
  ops::SliceLayout layout;
  layout.first_slice = slices.begin;
  layout.nodes = sum.nodes_of(rank);
  for (std::int64_t slice = 0; slice < slices.size(); ++slice) {
    layout.slices.push_back({slice * width, std::min((slice + 1) * width, local_columns)});
  }
  return layout;
}

ops::HeadMap head_map(const LlamaConfig& config, const ShardShape& shape) {
  ops::HeadMap map;
  map.local_query_heads = shape.local_num_heads();
  map.local_kv_heads = shape.local_num_kv_heads();
  const std::int64_t group = config.num_heads / config.num_kv_heads;
  for (std::int64_t head = shape.query_heads.begin; head < shape.query_heads.end; ++head) {
    map.kv_head_of_query.push_back(static_cast<std::int32_t>(head / group - shape.kv_heads.begin));
  }
  return map;
}

/// Of two candidates for one row the one that wins, `b` coming from higher columns: NaN first, then
/// the larger value.
ops::ArgMax better(const ops::ArgMax& a, const ops::ArgMax& b) {
  if (a.index < 0 || std::isnan(b.value)) return a.index >= 0 && std::isnan(a.value) ? a : b;
  if (b.index < 0 || std::isnan(a.value)) return a;
  return b.value > a.value ? b : a;
}

at::Tensor rows_of(const at::Tensor& buffer, std::int64_t num_rows) {
  return buffer.narrow(0, 0, num_rows);
}

}  // namespace

struct Decoder::State {
  State(const LlamaConfig& model_config, WeightSource& source, const ops::Context& ops_context,
        parallel::Communicator& group, const DecoderLimits& decoder_limits,
        const std::function<void(std::int64_t)>& progress);

  void run_layer(const LayerWeights& weights, std::int64_t layer, std::int64_t num_rows);
  void check(const StepPlan& plan) const;
  void select_hidden_rows(const StepPlan& plan);
  void probe_hidden(std::int64_t layer, std::int64_t num_rows);

  LlamaConfig config;
  const ops::Context& context;
  parallel::Communicator& communicator;
  DecoderLimits limits;
  ShardShape shape;
  DecoderWeights weights;
  ops::KvPool kv_pool;
  ops::HeadMap heads;
  std::vector<float> inverse_frequencies;
  std::vector<std::int64_t> vocab_widths;  // of each rank
  parallel::SlicedSum attention_sum;
  parallel::SlicedSum ffn_sum;
  ops::SliceLayout attention_layout;
  ops::SliceLayout ffn_layout;

  // Buffers for the largest step; N = its rows.
  at::Tensor x;             // [N, D] residual stream
  at::Tensor normed;        // [N, D]
  at::Tensor qkv;           // [N, (H + 2K) * d]
  at::Tensor attended;      // [N, H * d]
  at::Tensor partials;      // flat, [nodes, N, D]
  at::Tensor gate_up;       // [N, 2F]
  at::Tensor activated;     // [N, F]
  at::Tensor cosines;       // [N, d/2]
  at::Tensor sines;         // [N, d/2]
  at::Tensor hidden;        // [N, D] normalised rows that need logits: argmax rows, then logit rows
  at::Tensor logits_local;  // [kLogitChunk, V of this rank]
  at::Tensor logits_full;   // [kLogitChunk, V] on rank 0

  // Of the current step.
  std::vector<ops::SequenceRows> sequences;
  std::int64_t num_argmax_rows = 0;
  std::int64_t num_logit_rows = 0;
  std::function<void(std::int64_t, const at::Tensor&)> probe;
};

Decoder::State::State(const LlamaConfig& model_config, WeightSource& source,
                      const ops::Context& ops_context, parallel::Communicator& group,
                      const DecoderLimits& decoder_limits,
                      const std::function<void(std::int64_t)>& progress)
    : config(model_config),
      context(ops_context),
      communicator(group),
      limits(decoder_limits),
      shape(shard_shape(config, group.rank(), group.size())),
      weights(load_decoder_weights(config, shape, source, progress)),
      kv_pool({config.num_layers, limits.kv_blocks, shape.local_num_kv_heads(), config.head_dim}),
      heads(head_map(config, shape)),
      inverse_frequencies(rope_inverse_frequencies(config)),
      attention_sum(num_attention_slices(config), owned_heads(config, group.size())),
      ffn_sum(num_ffn_slices(config), owned_ffn_slices(config, group.size())),
      attention_layout(slice_layout(attention_sum, shape.query_heads, config.head_dim,
                                    shape.local_num_heads() * config.head_dim, group.rank())),
      ffn_layout(slice_layout(
          ffn_sum, owned_ffn_slices(config, group.size())[static_cast<std::size_t>(group.rank())],
          kBandColumns, shape.local_ffn_size(), group.rank())) {
  const std::int64_t rows = limits.max_step_tokens;
  const std::int64_t width = config.hidden_size;
  const std::int64_t query_size = shape.local_num_heads() * config.head_dim;
  const std::int64_t kv_size = shape.local_num_kv_heads() * config.head_dim;
  const auto nodes =
      static_cast<std::int64_t>(std::max(attention_layout.nodes.size(), ffn_layout.nodes.size()));
  const auto make = [](std::initializer_list<std::int64_t> sizes) {
    return at::empty(sizes, at::kFloat);
  };
  for (const ShardShape& peer : all_shard_shapes(config, group.size())) {
    vocab_widths.push_back(peer.local_vocab_size());
  }
  x = make({rows, width});
  normed = make({rows, width});
  qkv = make({rows, query_size + 2 * kv_size});
  attended = make({rows, query_size});
  partials = make({nodes * rows * width});
  gate_up = make({rows, 2 * shape.local_ffn_size()});
  activated = make({rows, shape.local_ffn_size()});
  cosines = make({rows, config.head_dim / 2});
  sines = make({rows, config.head_dim / 2});
  hidden = make({rows, width});
  logits_local = make({kLogitChunk, shape.local_vocab_size()});
  logits_full = group.size() == 1   ? logits_local
                : group.rank() == 0 ? make({kLogitChunk, config.vocab_size})
                                    : make({0, config.vocab_size});
}

std::int64_t activation_bytes(const LlamaConfig& config, const ShardShape& shape,
                              const DecoderLimits& limits) {
  const std::int64_t width = config.hidden_size;
  const std::int64_t query_size = shape.local_num_heads() * config.head_dim;
  const std::int64_t kv_size = shape.local_num_kv_heads() * config.head_dim;
  const parallel::SlicedSum attention(num_attention_slices(config),
                                      owned_heads(config, shape.num_ranks));
  const parallel::SlicedSum ffn(num_ffn_slices(config), owned_ffn_slices(config, shape.num_ranks));
  const std::int64_t nodes =
      std::max(std::ssize(attention.nodes_of(shape.rank)), std::ssize(ffn.nodes_of(shape.rank)));
  // x, normed, hidden; queries, keys, values; attention; partial sums; gate, up, activated; rotary
  // tables; and the input of a product, which the operations pack once more.
  const std::int64_t per_row = 3 * width + 2 * query_size + 2 * kv_size + nodes * width +
                               3 * shape.local_ffn_size() + config.head_dim +
                               std::max({width, shape.local_ffn_size(), query_size});
  std::int64_t logits = shape.local_vocab_size();
  if (shape.num_ranks > 1 && shape.rank == 0) logits += 2 * config.vocab_size;
  const std::int64_t scores = limits.num_threads * kScoreRows * config.max_positions;
  const std::int64_t exchange = shape.num_ranks > 1 ? parallel::kExchangeBytes : 0;
  return 4 * (limits.max_step_tokens * per_row + Decoder::kLogitChunk * logits + scores) + exchange;
}

Decoder::Decoder(const LlamaConfig& config, WeightSource& source, const ops::Context& context,
                 parallel::Communicator& communicator, const DecoderLimits& limits,
                 const std::function<void(std::int64_t bytes)>& progress) {
  const std::vector<std::string> problems = config.problems();
  CARAVAN_CHECK(problems.empty(), ConfigError, "the model description is unsound: {}",
                fmt::join(problems, "; "));
  CARAVAN_CHECK(!config.vision, ConfigError,
                "the model reads images (Llama 3.2 Vision), this version runs text models only");
  CARAVAN_CHECK(limits.max_step_tokens >= 1 && limits.kv_blocks >= 1, ConfigError,
                "a step needs at least one token and one KV block, found {} and {}",
                limits.max_step_tokens, limits.kv_blocks);
  state_ = std::make_unique<State>(config, source, context, communicator, limits, progress);
}

Decoder::~Decoder() = default;

const LlamaConfig& Decoder::config() const { return state_->config; }
const ShardShape& Decoder::shape() const { return state_->shape; }
std::int64_t Decoder::weight_bytes() const { return state_->weights.bytes; }

void Decoder::set_probe(std::function<void(std::int64_t layer, const at::Tensor& x)> probe) {
  state_->probe = std::move(probe);
}

void Decoder::State::check(const StepPlan& plan) const {
  const std::int64_t num_rows = std::ssize(plan.tokens);
  CARAVAN_ASSERT(
      num_rows >= 1 && num_rows <= limits.max_step_tokens && std::ssize(plan.positions) == num_rows,
      "step {} has {} tokens and {} positions, the limit is {}", plan.number, num_rows,
      plan.positions.size(), limits.max_step_tokens);
  std::int64_t covered = 0;
  for (const StepPlan::Segment& segment : plan.segments) {
    CARAVAN_ASSERT(segment.row_begin == covered && segment.row_count >= 1 &&
                       segment.block_begin >= 0 &&
                       segment.block_begin + segment.block_count <= std::ssize(plan.blocks) &&
                       segment.block_count * ops::KvPool::kBlockTokens >=
                           segment.position_begin + segment.row_count,
                   "step {}: segment at row {} does not fit its rows or blocks", plan.number,
                   segment.row_begin);
    covered += segment.row_count;
  }
  CARAVAN_ASSERT(covered == num_rows, "step {}: segments cover {} of {} rows", plan.number, covered,
                 num_rows);
  for (const std::int32_t block : plan.blocks) {
    CARAVAN_ASSERT(block >= 0 && block < limits.kv_blocks, "step {}: block {} of {}", plan.number,
                   block, limits.kv_blocks);
  }
  CARAVAN_ASSERT(std::ssize(plan.argmax_rows) + std::ssize(plan.logit_rows) <= num_rows,
                 "step {}: more logit rows than rows", plan.number);
}

void Decoder::State::run_layer(const LayerWeights& layer_weights, std::int64_t layer,
                               std::int64_t num_rows) {
  const std::int64_t width = config.hidden_size;
  at::Tensor residual = rows_of(x, num_rows);                // [N, D]
  at::Tensor norm_rows = rows_of(normed, num_rows);          // [N, D]
  at::Tensor qkv_rows = rows_of(qkv, num_rows);              // [N, (H + 2K) * d]
  at::Tensor attended_rows = rows_of(attended, num_rows);    // [N, H * d]
  at::Tensor gate_up_rows = rows_of(gate_up, num_rows);      // [N, 2F]
  at::Tensor activated_rows = rows_of(activated, num_rows);  // [N, F]
  const auto partial_view = [&](const ops::SliceLayout& layout) {
    const std::int64_t nodes = std::ssize(layout.nodes);
    return partials.narrow(0, 0, nodes * num_rows * width).view({nodes, num_rows, width});
  };
  const auto epsilon = static_cast<float>(config.norm_epsilon);

  ops::rms_norm(context, residual, layer_weights.attn_norm, epsilon, norm_rows);
  ops::linear(context, norm_rows, layer_weights.qkv, layer_weights.qkv_bias, qkv_rows);
  ops::rope_and_store(context, qkv_rows, rows_of(cosines, num_rows), rows_of(sines, num_rows),
                      heads, sequences, kv_pool, layer);
  ops::attention(context, qkv_rows, heads, sequences, kv_pool, layer, attended_rows);
  at::Tensor attention_partials = partial_view(attention_layout);  // [nodes, N, D]
  ops::linear_sliced(context, attended_rows, layer_weights.output, attention_layout,
                     attention_partials);
  communicator.add_sliced_sum(attention_sum, attention_partials, residual);
  if (layer_weights.output_bias.defined()) residual.add_(layer_weights.output_bias);

  ops::rms_norm(context, residual, layer_weights.ffn_norm, epsilon, norm_rows);
  ops::linear(context, norm_rows, layer_weights.gate_up, layer_weights.gate_up_bias, gate_up_rows);
  ops::swiglu(context, gate_up_rows, activated_rows);
  at::Tensor ffn_partials = partial_view(ffn_layout);  // [nodes, N, D]
  ops::linear_sliced(context, activated_rows, layer_weights.down, ffn_layout, ffn_partials);
  communicator.add_sliced_sum(ffn_sum, ffn_partials, residual);
  if (layer_weights.down_bias.defined()) residual.add_(layer_weights.down_bias);
}

void Decoder::State::probe_hidden(std::int64_t layer, std::int64_t num_rows) {
  if (probe) probe(layer, rows_of(x, num_rows));
}

void Decoder::State::select_hidden_rows(const StepPlan& plan) {
  num_argmax_rows = std::ssize(plan.argmax_rows);
  num_logit_rows = std::ssize(plan.logit_rows);
  const std::int64_t selected = num_argmax_rows + num_logit_rows;
  if (selected == 0) return;
  at::Tensor gathered = rows_of(normed, selected);
  at::Tensor argmax_part = gathered.narrow(0, 0, num_argmax_rows);
  at::Tensor logit_part = gathered.narrow(0, num_argmax_rows, num_logit_rows);
  ops::gather_rows(context, x, plan.argmax_rows, argmax_part);
  ops::gather_rows(context, x, plan.logit_rows, logit_part);
  at::Tensor target = rows_of(hidden, selected);
  ops::rms_norm(context, gathered, weights.final_norm, static_cast<float>(config.norm_epsilon),
                target);
}

void Decoder::forward(const StepPlan& plan) {
  State& state = *state_;
  state.check(plan);
  const std::int64_t num_rows = std::ssize(plan.tokens);
  for (const StepPlan::BlockCopy& copy : plan.block_copies) {
    state.kv_pool.copy_block(copy.source, copy.target);
  }
  state.sequences.clear();
  for (const StepPlan::Segment& segment : plan.segments) {
    state.sequences.push_back({segment.row_begin, segment.row_count, segment.position_begin,
                               std::span(plan.blocks)
                                   .subspan(static_cast<std::size_t>(segment.block_begin),
                                            static_cast<std::size_t>(segment.block_count))});
  }

  at::Tensor residual = rows_of(state.x, num_rows);
  at::Tensor cosine_rows = rows_of(state.cosines, num_rows);
  at::Tensor sine_rows = rows_of(state.sines, num_rows);
  ops::embedding(state.context, plan.tokens, state.weights.embedding, state.shape.vocab_rows,
                 residual);
  state.communicator.sum_disjoint(residual);
  ops::rope_tables(state.context, plan.positions, state.inverse_frequencies, cosine_rows,
                   sine_rows);
  state.probe_hidden(-1, num_rows);
  for (std::int64_t layer = 0; layer < state.config.num_layers; ++layer) {
    state.run_layer(state.weights.layers[static_cast<std::size_t>(layer)], layer, num_rows);
    state.probe_hidden(layer, num_rows);
  }
  if (state.probe) {
    at::Tensor all_rows = rows_of(state.normed, num_rows);
    ops::rms_norm(state.context, residual, state.weights.final_norm,
                  static_cast<float>(state.config.norm_epsilon), all_rows);
    state.probe(state.config.num_layers, all_rows);
  }
  state.select_hidden_rows(plan);
}

std::vector<ops::ArgMax> Decoder::argmax() {
  State& state = *state_;
  std::vector<ops::ArgMax> best(static_cast<std::size_t>(state.num_argmax_rows));
  const int num_ranks = state.communicator.size();
  for (std::int64_t begin = 0; begin < state.num_argmax_rows; begin += kLogitChunk) {
    const std::int64_t count = std::min(kLogitChunk, state.num_argmax_rows - begin);
    at::Tensor logits = rows_of(state.logits_local, count);  // [n, V of this rank]
    ops::linear(state.context, state.hidden.narrow(0, begin, count), state.weights.output_head(),
                {}, logits);
    std::vector<ops::ArgMax> local(static_cast<std::size_t>(count));
    ops::argmax(state.context, logits, local);
    for (ops::ArgMax& entry : local) {
      if (entry.index >= 0) {
        entry.index += static_cast<std::int32_t>(state.shape.vocab_rows.begin);
      }
    }
    const auto gathered = state.communicator.all_gather(std::as_bytes(std::span(local)));
    std::vector<ops::ArgMax> all(static_cast<std::size_t>(count * num_ranks));
    std::memcpy(all.data(), gathered.data(), gathered.size());
    for (std::int64_t row = 0; row < count; ++row) {
      ops::ArgMax winner = all[static_cast<std::size_t>(row)];
      for (int rank = 1; rank < num_ranks; ++rank) {
        winner = better(winner, all[static_cast<std::size_t>(rank * count + row)]);
      }
      best[static_cast<std::size_t>(begin + row)] = winner;
    }
  }
  return best;
}

void Decoder::logits(
    const std::function<void(std::int64_t index, std::span<const float> row)>& use) {
  State& state = *state_;
  for (std::int64_t begin = 0; begin < state.num_logit_rows; begin += kLogitChunk) {
    const std::int64_t count = std::min(kLogitChunk, state.num_logit_rows - begin);
    at::Tensor local = rows_of(state.logits_local, count);  // [n, V of this rank]
    ops::linear(state.context, state.hidden.narrow(0, state.num_argmax_rows + begin, count),
                state.weights.output_head(), {}, local);
    at::Tensor full =
        state.communicator.rank() == 0 ? rows_of(state.logits_full, count) : state.logits_full;
    state.communicator.gather_columns(local, state.vocab_widths, full);
    if (state.communicator.rank() != 0) continue;
    const auto* data = full.data_ptr<float>();
    const auto vocab = static_cast<std::size_t>(state.config.vocab_size);
    for (std::int64_t row = 0; row < count; ++row) {
      use(begin + row, {data + static_cast<std::size_t>(row) * vocab, vocab});
    }
  }
}

}  // namespace caravan::model
