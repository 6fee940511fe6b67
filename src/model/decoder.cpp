#include "caravan/model/decoder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "caravan/core/error.h"
#include "caravan/ops/attention.h"
#include "caravan/ops/buffers.h"
#include "caravan/ops/linear.h"
#include "decoder_layout.h"
#include "decoder_weights.h"
#include "image_layers.h"
#include "row_sum.h"

namespace caravan::model {
namespace {

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

/// Views of the buffers for the N rows of a step, made once for all layers: making a view
/// allocates.
struct StepRows {
  at::Tensor residual;            // [N, D]
  at::Tensor normed;              // [N, D]
  at::Tensor qkv;                 // [N, (H + 2K) * d]
  at::Tensor attended;            // [N, H * d]
  at::Tensor attention_partials;  // [nodes, N, D]
  at::Tensor gate_up;             // [N, 2F]
  at::Tensor activated;           // [N, F]
  at::Tensor ffn_partials;        // [nodes, N, D]
  at::Tensor cosines;             // [N, d/2]
  at::Tensor sines;               // [N, d/2]
};

}  // namespace

struct Decoder::State {
  State(const LlamaConfig& model_config, WeightSource& source, const ops::Context& ops_context,
        parallel::Communicator& group, const DecoderLimits& decoder_limits,
        const std::function<void(std::int64_t)>& progress);

  void begin_step(const StepPlan& plan);
  void run_layer(const LayerWeights& weights, std::int64_t layer);
  void read_images(std::int64_t next_layer);
  void check(const StepPlan& plan) const;
  void select_hidden_rows(const StepPlan& plan);
  void normalise(const at::Tensor& input, at::Tensor& output) const;

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
  RowSum attention_sum;
  RowSum ffn_sum;

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

  std::unique_ptr<ImageLayers> images;  // of models with vision; uses the buffers above

  // Of the current step.
  StepRows step;
  std::vector<ops::SequenceRows> sequences;
  std::vector<ops::ArgMax> best;        // of argmax()
  std::vector<ops::ArgMax> local_best;  // of this rank's vocabulary
  std::vector<ops::ArgMax> all_best;    // [ranks][rows]
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
      weights(load_decoder_weights(config, shape, source, context.compute(), progress)),
      kv_pool({config.num_layers, limits.kv_blocks, shape.local_num_kv_heads(), config.head_dim,
               limits.kv_dtype}),
      heads(head_map(config, shape)),
      inverse_frequencies(rope_inverse_frequencies(config)),
      attention_sum(attention_row_sum(config, shape)),
      ffn_sum(ffn_row_sum(config, shape)) {
  const std::int64_t rows = limits.max_step_tokens;
  const std::int64_t width = config.hidden_size;
  const std::int64_t query_size = shape.local_num_heads() * config.head_dim;
  const std::int64_t kv_size = shape.local_num_kv_heads() * config.head_dim;
  const std::int64_t nodes = std::max(attention_sum.num_nodes(), ffn_sum.num_nodes());
  const auto make = [&](std::initializer_list<std::int64_t> sizes) {
    return ops::make_buffer(context, sizes);
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
  if (config.vision) {
    images = std::make_unique<ImageLayers>(
        LayerHost{config, context, communicator, heads, limits}, source,
        LayerBuffers{normed, hidden, qkv, attended, partials, gate_up, activated}, progress);
  }
}

Decoder::Decoder(const LlamaConfig& config, WeightSource& source, const ops::Context& context,
                 parallel::Communicator& communicator, const DecoderLimits& limits,
                 const std::function<void(std::int64_t bytes)>& progress) {
  const std::vector<std::string> problems = config.problems();
  CARAVAN_CHECK(problems.empty(), ConfigError, "the model description is unsound: {}",
                fmt::join(problems, "; "));
  CARAVAN_CHECK(limits.max_step_tokens >= 1 && limits.kv_blocks >= 1, ConfigError,
                "a step needs at least one token and one KV block, found {} and {}",
                limits.max_step_tokens, limits.kv_blocks);
  state_ = std::make_unique<State>(config, source, context, communicator, limits, progress);
}

Decoder::~Decoder() = default;

const LlamaConfig& Decoder::config() const { return state_->config; }
const ShardShape& Decoder::shape() const { return state_->shape; }
std::int64_t Decoder::weight_bytes() const {
  return state_->weights.bytes + (state_->images ? state_->images->weight_bytes() : 0);
}

std::int64_t Decoder::step_weight_bytes() const {
  const DecoderWeights& weights = state_->weights;
  return weights.bytes - (weights.tied ? 0 : weights.embedding.bytes());
}

VisionEncoder& Decoder::encoder() {
  CARAVAN_ASSERT(state_->images, "the model has no image encoder");
  return state_->images->encoder();
}

void Decoder::set_probe(std::function<void(std::int64_t layer, const at::Tensor& x)> probe) {
  state_->probe = std::move(probe);
}

void Decoder::State::check(const StepPlan& plan) const {
  const std::int64_t num_rows = std::ssize(plan.tokens);
  const bool has_work = !plan.image_work.empty();
  CARAVAN_ASSERT(images || (!has_work && plan.image_rows.empty()),
                 "step {} has images, the model reads none", plan.number);
  if (images) images->check(plan);
  CARAVAN_ASSERT((num_rows >= 1 || has_work) && num_rows <= limits.max_step_tokens &&
                     std::ssize(plan.positions) == num_rows,
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

void Decoder::State::begin_step(const StepPlan& plan) {
  const std::int64_t num_rows = std::ssize(plan.tokens);
  const auto partial_view = [&](const RowSum& row_sum) {
    const std::int64_t nodes = row_sum.num_nodes();
    return partials.narrow(0, 0, nodes * num_rows * config.hidden_size)
        .view({nodes, num_rows, config.hidden_size});
  };
  step.residual = rows_of(x, num_rows);
  step.normed = rows_of(normed, num_rows);
  step.qkv = rows_of(qkv, num_rows);
  step.attended = rows_of(attended, num_rows);
  step.attention_partials = partial_view(attention_sum);
  step.gate_up = rows_of(gate_up, num_rows);
  step.activated = rows_of(activated, num_rows);
  step.ffn_partials = partial_view(ffn_sum);
  step.cosines = rows_of(cosines, num_rows);
  step.sines = rows_of(sines, num_rows);
  sequences.clear();
  for (const StepPlan::Segment& segment : plan.segments) {
    sequences.push_back({segment.row_begin, segment.row_count, segment.position_begin,
                         std::span(plan.blocks)
                             .subspan(static_cast<std::size_t>(segment.block_begin),
                                      static_cast<std::size_t>(segment.block_count))});
  }
  if (images) images->begin_step(plan);
}

void Decoder::State::run_layer(const LayerWeights& layer_weights, std::int64_t layer) {
  const auto epsilon = static_cast<float>(config.norm_epsilon);
  ops::rms_norm(context, step.residual, layer_weights.attn_norm, epsilon, step.normed);
  ops::linear(context, step.normed, layer_weights.qkv, layer_weights.qkv_bias, step.qkv);
  ops::rope_and_store(context, step.qkv, step.cosines, step.sines, heads, sequences, kv_pool,
                      layer);
  ops::attention(context, step.qkv, heads, sequences, kv_pool, layer, step.attended);
  ops::linear_sliced(context, step.attended, layer_weights.output, attention_sum.layout,
                     step.attention_partials);
  communicator.add_sliced_sum(attention_sum.sum, step.attention_partials, step.residual);
  if (layer_weights.output_bias.defined()) {
    ops::add_bias(context, layer_weights.output_bias, step.residual);
  }

  ops::rms_norm(context, step.residual, layer_weights.ffn_norm, epsilon, step.normed);
  ops::linear(context, step.normed, layer_weights.gate_up, layer_weights.gate_up_bias,
              step.gate_up);
  ops::swiglu(context, step.gate_up, step.activated);
  ops::linear_sliced(context, step.activated, layer_weights.down, ffn_sum.layout,
                     step.ffn_partials);
  communicator.add_sliced_sum(ffn_sum.sum, step.ffn_partials, step.residual);
  if (layer_weights.down_bias.defined()) {
    ops::add_bias(context, layer_weights.down_bias, step.residual);
  }
}

/// The layer that reads images right before text layer `next_layer`, where there is one.
void Decoder::State::read_images(std::int64_t next_layer) {
  const std::int64_t layer = images ? images->layer_before(next_layer) : -1;
  if (layer < 0) return;
  images->run(layer, step.residual);
  if (probe) probe(-2 - layer, step.residual);
}

void Decoder::State::normalise(const at::Tensor& input, at::Tensor& output) const {
  ops::rms_norm(context, input, weights.final_norm, static_cast<float>(config.norm_epsilon),
                output);
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
  normalise(gathered, target);
}

void Decoder::forward(const StepPlan& plan) {
  State& state = *state_;
  state.check(plan);
  for (const StepPlan::BlockCopy& copy : plan.block_copies) {
    state.kv_pool.copy_block(copy.source, copy.target);
  }
  if (state.images) state.images->run_work(plan);
  if (plan.tokens.empty()) return state.select_hidden_rows(plan);
  state.begin_step(plan);
  StepRows& step = state.step;
  ops::embedding(state.context, plan.tokens, state.weights.embedding, state.shape.vocab_rows,
                 step.residual);
  state.communicator.sum_disjoint(step.residual);
  if (state.images) state.images->embed_extra(plan.tokens, step.residual);
  ops::rope_tables(state.context, plan.positions, state.inverse_frequencies, step.cosines,
                   step.sines);
  if (state.probe) state.probe(-1, step.residual);
  for (std::int64_t layer = 0; layer < state.config.num_layers; ++layer) {
    state.read_images(layer);
    state.run_layer(state.weights.layers[static_cast<std::size_t>(layer)], layer);
    if (state.probe) state.probe(layer, step.residual);
  }
  if (state.probe) {
    state.normalise(step.residual, step.normed);
    state.probe(state.config.num_layers, step.normed);
  }
  state.select_hidden_rows(plan);
}

std::span<const ops::ArgMax> Decoder::argmax() {
  State& state = *state_;
  std::vector<ops::ArgMax>& best = state.best;
  std::vector<ops::ArgMax>& local = state.local_best;
  std::vector<ops::ArgMax>& all = state.all_best;
  best.resize(static_cast<std::size_t>(state.num_argmax_rows));
  const int num_ranks = state.communicator.size();
  for (std::int64_t begin = 0; begin < state.num_argmax_rows; begin += kLogitChunk) {
    const std::int64_t count = std::min(kLogitChunk, state.num_argmax_rows - begin);
    at::Tensor logits = rows_of(state.logits_local, count);  // [n, V of this rank]
    ops::linear(state.context, state.hidden.narrow(0, begin, count), state.weights.output_head(),
                {}, logits);
    local.resize(static_cast<std::size_t>(count));
    ops::argmax(state.context, logits, local);
    for (ops::ArgMax& entry : local) {
      if (entry.index >= 0) {
        entry.index += static_cast<std::int32_t>(state.shape.vocab_rows.begin);
      }
    }
    const auto gathered = state.communicator.all_gather(std::as_bytes(std::span(local)));
    all.resize(static_cast<std::size_t>(count * num_ranks));
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
  const auto vocab = static_cast<std::size_t>(state_->config.vocab_size);
  logit_blocks([&](std::int64_t begin, std::span<const float> rows) {
    for (std::size_t at = 0; at < rows.size(); at += vocab) {
      use(begin + static_cast<std::int64_t>(at / vocab), rows.subspan(at, vocab));
    }
  });
}

void Decoder::logit_blocks(
    const std::function<void(std::int64_t begin, std::span<const float> rows)>& use) {
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
    const at::Tensor rows = ops::to_host(state.context, full);
    const auto* data = rows.const_data_ptr<float>();
    const auto vocab = static_cast<std::size_t>(state.config.vocab_size);
    use(begin, {data, static_cast<std::size_t>(count) * vocab});
  }
}

}  // namespace caravan::model
