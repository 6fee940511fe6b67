#include "image_layers.h"

#include <algorithm>
#include <utility>

#include "caravan/core/error.h"
#include "caravan/ops/buffers.h"
#include "caravan/ops/elementwise.h"
#include "caravan/ops/linear.h"
#include "caravan/ops/vision_rows.h"

namespace caravan::model {
namespace {

constexpr std::int64_t kBlock = ops::KvPool::kBlockTokens;

at::Tensor first_rows(const at::Tensor& buffer, std::int64_t count) {
  return buffer.narrow(0, 0, count);
}

template <typename T>
std::span<const T> part_of(const std::vector<T>& values, std::int32_t begin, std::int32_t count) {
  return std::span(values).subspan(static_cast<std::size_t>(begin),
                                   static_cast<std::size_t>(count));
}

/// Whether [begin, begin + count) lies in [0, size).
bool lies_in(std::int64_t begin, std::int64_t count, std::int64_t size) {
  return begin >= 0 && count >= 0 && begin + count <= size;
}

ShardShape shape_on(const parallel::Communicator& communicator, const LlamaConfig& config) {
  return shard_shape(config, communicator.rank(), communicator.size());
}

}  // namespace

std::int64_t image_block_bytes(const LlamaConfig& config, const ShardShape& shape, DType kv_dtype) {
  if (!config.vision) return 0;
  return ops::KvPool::block_bytes({config.vision->num_cross_layers(), 1, shape.local_num_kv_heads(),
                                   config.head_dim, kv_dtype});
}

ImageLayers::ImageLayers(const LayerHost& host, WeightSource& source, LayerBuffers buffers,
                         const std::function<void(std::int64_t bytes)>& progress)
    : config_(host.config),
      context_(host.context),
      communicator_(host.communicator),
      heads_(host.heads),
      buffers_(std::move(buffers)),
      weights_([&] {
        const ShardShape shape = shape_on(communicator_, config_);
        WeightLoader loader(config_, shape, source, context_.compute(), progress);
        return load_cross_weights(loader);
      }()),
      encoder_(config_, source, context_, communicator_, progress),
      images_({config_.vision->num_cross_layers(), host.limits.image_blocks, heads_.local_kv_heads,
               config_.head_dim, host.limits.kv_dtype}),
      attention_sum_(attention_row_sum(config_, shape_on(communicator_, config_))),
      ffn_sum_(ffn_row_sum(config_, shape_on(communicator_, config_))),
      seeing_(ops::make_buffer(context_, {host.limits.max_step_tokens, config_.hidden_size})) {}

void ImageLayers::check(const StepPlan& plan) const {
  for (const StepPlan::ImageWork& work : plan.image_work) {
    CARAVAN_ASSERT(work.unit_count >= 1 &&
                       lies_in(work.pixel_begin, work.pixel_count, std::ssize(plan.pixels)) &&
                       lies_in(work.block_begin, work.block_count, std::ssize(plan.image_blocks)),
                   "step {}: units [{}, {}) of an image do not fit the plan", plan.number,
                   work.unit_begin, work.unit_begin + work.unit_count);
  }
  std::int64_t next = 0;
  for (const StepPlan::ImageRows& part : plan.image_rows) {
    CARAVAN_ASSERT(part.row_begin >= next && part.row_count >= 1 &&
                       lies_in(part.row_begin, part.row_count, std::ssize(plan.tokens)),
                   "step {}: rows [{}, {}) that see images, of {}", plan.number, part.row_begin,
                   part.row_begin + part.row_count, plan.tokens.size());
    next = part.row_begin + part.row_count;
    CARAVAN_ASSERT(part.image_count >= 1 &&
                       lies_in(part.image_begin, part.image_count, std::ssize(plan.seen_tokens)) &&
                       lies_in(part.block_begin, part.block_count, std::ssize(plan.seen_blocks)),
                   "step {}: the images that row {} sees do not fit the plan", plan.number,
                   part.row_begin);
    std::int64_t needed = 0;
    for (const std::int32_t tokens :
         part_of(plan.seen_tokens, part.image_begin, part.image_count)) {
      CARAVAN_ASSERT(tokens >= 1, "step {}: an image of {} tokens", plan.number, tokens);
      needed += ceil_div(tokens, kBlock);
    }
    CARAVAN_ASSERT(part.block_count == needed,
                   "step {}: the images that row {} sees have {} blocks, {} are given", plan.number,
                   part.row_begin, needed, part.block_count);
  }
}

void ImageLayers::run_work(const StepPlan& plan) {
  for (const StepPlan::ImageWork& work : plan.image_work) {
    for (std::int64_t unit = work.unit_begin; unit < work.unit_begin + work.unit_count; ++unit) {
      if (unit == 0) {
        encoder_.embed({work.tiles_down, work.tiles_across},
                       part_of(plan.pixels, work.pixel_begin, work.pixel_count));
      } else if (unit <= encoder_.num_layers()) {
        encoder_.run_layer(unit - 1);
      } else {
        const std::int64_t piece = unit - 1 - encoder_.num_layers();
        store(encoder_.project(piece), piece * VisionEncoder::kChunkRows,
              part_of(plan.image_blocks, work.block_begin, work.block_count));
      }
    }
  }
}

void ImageLayers::store(const at::Tensor& tokens, std::int64_t first,
                        std::span<const std::int32_t> blocks) {
  const std::int64_t most = buffers_.qkv.size(0);
  const std::int64_t kv_size = heads_.local_kv_heads * config_.head_dim;
  for (std::int64_t layer = 0; layer < std::ssize(weights_.layers); ++layer) {
    const CrossLayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
    for (std::int64_t begin = 0; begin < tokens.size(0); begin += most) {
      const std::int64_t count = std::min(most, tokens.size(0) - begin);
      at::Tensor both = first_rows(buffers_.qkv, count).narrow(1, 0, 2 * kv_size);  // [n, 2K * d]
      at::Tensor keys = both.narrow(1, 0, kv_size);
      ops::linear(context_, tokens.narrow(0, begin, count), weights.key_value, {}, both);
      ops::rms_norm_heads(context_, keys, weights.key_norm,
                          static_cast<float>(config_.norm_epsilon));
      ops::store_keys_values(context_, keys, both.narrow(1, kv_size, kv_size), blocks,
                             first + begin, images_, layer);
    }
  }
}

void ImageLayers::begin_step(const StepPlan& plan) {
  rows_.clear();
  runs_.clear();
  ranges_.clear();
  for (const std::int32_t tokens : plan.seen_tokens) runs_.push_back({tokens, 0});
  for (const StepPlan::ImageRows& part : plan.image_rows) {
    ranges_.push_back({std::ssize(rows_), part.row_count,
                       part_of(runs_, part.image_begin, part.image_count),
                       part_of(plan.seen_blocks, part.block_begin, part.block_count)});
    for (std::int32_t i = 0; i < part.row_count; ++i) rows_.push_back(part.row_begin + i);
  }
  if (!rows_.empty()) make_views();
}

void ImageLayers::embed_extra(std::span<const std::int32_t> tokens, at::Tensor& x) const {
  for (std::size_t n = 0; n < tokens.size(); ++n) {
    const std::int64_t row = tokens[n] - config_.vocab_size;
    if (row < 0) continue;
    CARAVAN_ASSERT(row < config_.vision->extra_embeddings,
                   "token id {} of a model with {} and {} embeddings", tokens[n],
                   config_.vocab_size, config_.vision->extra_embeddings);
    ops::copy_row(context_, weights_.extra_embedding, row, x, static_cast<std::int64_t>(n));
  }
}

std::int64_t ImageLayers::layer_before(std::int64_t text_layer) const {
  const auto& layers = config_.vision->cross_layers;
  const auto found = std::find(layers.begin(), layers.end(), text_layer);
  return rows_.empty() || found == layers.end() ? -1 : found - layers.begin();
}

void ImageLayers::make_views() {
  const std::int64_t count = std::ssize(rows_);
  const std::int64_t width = config_.hidden_size;
  const auto partials = [&](const RowSum& row_sum) {
    const std::int64_t nodes = row_sum.num_nodes();
    return buffers_.partials.narrow(0, 0, nodes * count * width).view({nodes, count, width});
  };
  views_.x = first_rows(seeing_, count);
  views_.normed = first_rows(buffers_.normed, count);
  views_.sum = first_rows(buffers_.sum, count);
  views_.queries =
      first_rows(buffers_.qkv, count).narrow(1, 0, heads_.local_query_heads * config_.head_dim);
  views_.attended = first_rows(buffers_.attended, count);
  views_.attention_partials = partials(attention_sum_);
  views_.gate_up = first_rows(buffers_.gate_up, count);
  views_.activated = first_rows(buffers_.activated, count);
  views_.ffn_partials = partials(ffn_sum_);
}

void ImageLayers::attend(const CrossLayerWeights& weights, std::int64_t layer) {
  const auto epsilon = static_cast<float>(config_.norm_epsilon);
  ops::rms_norm(context_, views_.x, weights.attn_norm, epsilon, views_.normed);
  ops::linear(context_, views_.normed, weights.query, {}, views_.queries);
  ops::rms_norm_heads(context_, views_.queries, weights.query_norm, epsilon);
  ops::full_attention(context_, views_.queries, heads_, ranges_, images_, layer, views_.attended);
  add_gated_sum(context_, communicator_,
                {attention_sum_, views_.attended, weights.output, {}, weights.attention_gate},
                {views_.attention_partials, views_.sum}, views_.x);
}

void ImageLayers::feed_forward(const CrossLayerWeights& weights) {
  ops::rms_norm(context_, views_.x, weights.ffn_norm, static_cast<float>(config_.norm_epsilon),
                views_.normed);
  ops::linear(context_, views_.normed, weights.gate_up, {}, views_.gate_up);
  ops::swiglu(context_, views_.gate_up, views_.activated);
  add_gated_sum(context_, communicator_,
                {ffn_sum_, views_.activated, weights.down, {}, weights.ffn_gate},
                {views_.ffn_partials, views_.sum}, views_.x);
}

void ImageLayers::run(std::int64_t layer, at::Tensor& x) {
  const CrossLayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  ops::gather_rows(context_, x, rows_, views_.x);
  attend(weights, layer);
  feed_forward(weights);
  ops::scatter_rows(context_, views_.x, rows_, x);
}

}  // namespace caravan::model
