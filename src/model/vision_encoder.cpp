#include "caravan/model/vision_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "caravan/core/error.h"
#include "caravan/ops/buffers.h"
#include "caravan/ops/elementwise.h"
#include "caravan/ops/full_attention.h"
#include "caravan/ops/linear.h"
#include "caravan/ops/vision_rows.h"
#include "decoder_layout.h"
#include "encoder_embedding.h"
#include "encoder_rows.h"
#include "row_sum.h"
#include "vision_weights.h"

namespace caravan::model {
namespace {

constexpr std::int64_t kChunk = VisionEncoder::kChunkRows;

/// Every image has at most these many rows.
std::int64_t most_rows(const VisionConfig& vision) {
  return kMaxTiles * vision.tile_tokens() + kMaxTiles;
}

ops::KvPool::Shape pool_shape(const LlamaConfig& config, const ShardShape& shape) {
  return {1, most_encoder_blocks(*config.vision), shape.vision_heads.size(),
          config.vision->head_dim()};
}

ops::HeadMap head_map(const ShardShape& shape) {
  ops::HeadMap map;
  map.local_query_heads = shape.vision_heads.size();
  map.local_kv_heads = shape.vision_heads.size();
  map.kv_head_of_query.resize(static_cast<std::size_t>(map.local_query_heads));
  std::iota(map.kv_head_of_query.begin(), map.kv_head_of_query.end(), 0);
  return map;
}

/// Calls use(rows) for runs of at most kChunk rows of [0, total).
template <typename Use>
void for_chunks(Range rows, const Use& use) {
  for (std::int64_t begin = rows.begin; begin < rows.end; begin += kChunk) {
    use(Range{begin, std::min(begin + kChunk, rows.end)});
  }
}

at::Tensor cut(const at::Tensor& buffer, Range rows) {
  return buffer.narrow(0, rows.begin, rows.size());
}

}  // namespace

struct VisionEncoder::State {
  State(const LlamaConfig& model_config, WeightSource& source, const ops::Context& ops_context,
        parallel::Communicator& group, const std::function<void(std::int64_t)>& progress);

  void begin_global_layers();
  void save_features(std::int64_t first_column, std::int64_t step);
  void store_keys(const EncoderLayerWeights& layer, Range chunk);
  void attend(const EncoderLayerWeights& layer, Range chunk);
  void feed_forward(const EncoderLayerWeights& layer, Range chunk);
  void add(const GatedProduct& product, at::Tensor& target);
  void report(std::string_view stage);

  LlamaConfig config;
  VisionConfig vision;
  const ops::Context& context;
  parallel::Communicator& communicator;
  ShardShape shape;
  VisionWeights weights;
  ops::HeadMap heads;
  RowSum attention_sum;
  RowSum ffn_sum;
  ops::KvPool keys;  // of the layer that runs

  // Of the whole image.
  at::Tensor x;         // [rows, W]
  at::Tensor queries;   // [rows, H * d]
  at::Tensor features;  // [tokens, feature size]
  // Of a chunk of rows.
  at::Tensor patches;    // [chunk, 3 * P * P]
  at::Tensor normed;     // [chunk, W]
  at::Tensor sum;        // [chunk, W]
  at::Tensor key_value;  // two of [chunk, H * d]
  at::Tensor attended;   // [chunk, H * d]
  at::Tensor hidden;     // [chunk, F]
  at::Tensor partials;   // flat, [nodes, chunk, W]
  at::Tensor projected;  // [chunk, D]
  std::optional<EncoderEmbedding> embedding;

  EncoderRows rows;  // of the current image
  std::int64_t next_layer = 0;
  std::function<void(std::string_view, const at::Tensor&)> probe;
};

std::int64_t encoder_activation_bytes(const LlamaConfig& config, const ShardShape& shape,
                                      std::int64_t num_threads) {
  const VisionConfig& vision = *config.vision;
  const std::int64_t width = vision.width;
  const std::int64_t query_size = shape.vision_heads.size() * vision.head_dim();
  const std::int64_t ffn = shape.vision_ffn_columns.size();
  const std::int64_t nodes = std::max(vision_attention_row_sum(config, shape).num_nodes(),
                                      vision_ffn_row_sum(config, shape).num_nodes());
  const std::int64_t rows = most_rows(vision);
  const std::int64_t whole = rows * (width + query_size + vision.feature_size());
  // Buffers of a chunk, and the input of a product, which the operations pack once more.
  const std::int64_t per_row = vision.patch_elements() + 2 * width + 3 * query_size + ffn +
                               nodes * width + config.hidden_size +
                               std::max({vision.feature_size(), ffn, vision.patch_elements()});
  const std::int64_t scores =
      num_threads * kScoreRows * (most_encoder_blocks(vision) * ops::KvPool::kBlockTokens);
  const ops::KvPool::Shape pool = pool_shape(config, shape);
  return 4 * (whole + kChunk * per_row + scores) + ops::KvPool::block_bytes(pool) * pool.num_blocks;
}

std::int64_t num_image_units(const VisionConfig& vision, const TileGrid& grid) {
  return 1 + vision.num_local_layers + vision.num_global_layers +
         VisionEncoder::num_pieces(grid.num_tiles() * vision.tile_tokens());
}

VisionEncoder::State::State(const LlamaConfig& model_config, WeightSource& source,
                            const ops::Context& ops_context, parallel::Communicator& group,
                            const std::function<void(std::int64_t)>& progress)
    : config(model_config),
      vision(*config.vision),
      context(ops_context),
      communicator(group),
      shape(shard_shape(config, group.rank(), group.size())),
      heads(head_map(shape)),
      attention_sum(vision_attention_row_sum(config, shape)),
      ffn_sum(vision_ffn_row_sum(config, shape)),
      keys(pool_shape(config, shape)) {
  WeightLoader loader(config, shape, source, context.compute(), progress);
  weights = load_vision_weights(loader);
  const std::int64_t image_rows = most_rows(vision);
  const std::int64_t query_size = shape.vision_heads.size() * vision.head_dim();
  const std::int64_t nodes = std::max(attention_sum.num_nodes(), ffn_sum.num_nodes());
  const auto make = [&](std::initializer_list<std::int64_t> sizes) {
    return ops::make_buffer(context, sizes);
  };
  x = make({image_rows, vision.width});
  queries = make({image_rows, query_size});
  features = make({kMaxTiles * vision.tile_tokens(), vision.feature_size()});
  patches = make({kChunk, vision.patch_elements()});
  normed = make({kChunk, vision.width});
  sum = make({kChunk, vision.width});
  key_value = make({2, kChunk, query_size});
  attended = make({kChunk, query_size});
  hidden = make({kChunk, shape.vision_ffn_columns.size()});
  partials = make({nodes * kChunk * vision.width});
  projected = make({kChunk, config.hidden_size});
  embedding.emplace(vision, context, weights, EncoderEmbedding::Buffers{patches, sum});
}

void VisionEncoder::State::add(const GatedProduct& product, at::Tensor& target) {
  const std::int64_t nodes = product.row_sum.num_nodes();
  const std::int64_t count = target.size(0);
  add_gated_sum(
      context, communicator, product,
      {partials.narrow(0, 0, nodes * count * vision.width).view({nodes, count, vision.width}),
       cut(sum, {0, count})},
      target);
}

void VisionEncoder::State::report(std::string_view stage) {
  if (probe) probe(stage, cut(x, {0, rows.total()}));
}

void VisionEncoder::State::save_features(std::int64_t first_column, std::int64_t step) {
  const std::int64_t width = vision.width;
  const std::int64_t stride = vision.feature_size();
  const auto* source = x.data_ptr<float>();
  auto* target = features.data_ptr<float>() + first_column;
  for (std::int64_t row = 0; row < rows.image_tokens(); ++row) {
    for (std::int64_t c = 0; c < width; ++c) {
      target[row * stride + c * step] = source[row * width + c];
    }
  }
}

void VisionEncoder::State::store_keys(const EncoderLayerWeights& layer, Range chunk) {
  at::Tensor norm_rows = cut(normed, {0, chunk.size()});  // [chunk, W]
  at::Tensor query_rows = cut(queries, chunk);            // [chunk, H * d]
  at::Tensor key_rows = cut(key_value.select(0, 0), {0, chunk.size()});
  at::Tensor value_rows = cut(key_value.select(0, 1), {0, chunk.size()});
  ops::layer_norm(context, cut(x, chunk), layer.norm1, layer.norm1_bias,
                  static_cast<float>(vision.norm_epsilon), norm_rows);
  ops::linear(context, norm_rows, layer.query, {}, query_rows);
  ops::linear(context, norm_rows, layer.key, {}, key_rows);
  ops::linear(context, norm_rows, layer.value, {}, value_rows);
  for (const EncoderRows::Run& run : rows.runs()) {
    const Range part{std::max(run.rows.begin, chunk.begin), std::min(run.rows.end, chunk.end)};
    if (part.empty()) continue;
    const Range local{part.begin - chunk.begin, part.end - chunk.begin};
    ops::store_keys_values(context, cut(key_rows, local), cut(value_rows, local), run.blocks,
                           part.begin - run.rows.begin, keys, 0);
  }
}

void VisionEncoder::State::attend(const EncoderLayerWeights& layer, Range chunk) {
  at::Tensor out = cut(attended, {0, chunk.size()});  // [chunk, H * d]
  // Tokens of the image see everything; the others see the tokens of the image.
  const std::int64_t border = std::clamp(rows.image_tokens(), chunk.begin, chunk.end);
  const ops::VisibleRows ranges[2] = {
      {0, border - chunk.begin, rows.key_runs(), rows.blocks()},
      {border - chunk.begin, chunk.end - border, rows.key_runs().first(1), rows.blocks()}};
  ops::full_attention(context, cut(queries, chunk), heads, ranges, keys, 0, out);
  at::Tensor target = cut(x, chunk);  // [chunk, W]
  add({attention_sum, out, layer.output, {}, layer.attention_gate}, target);
}

void VisionEncoder::State::feed_forward(const EncoderLayerWeights& layer, Range chunk) {
  at::Tensor norm_rows = cut(normed, {0, chunk.size()});    // [chunk, W]
  at::Tensor hidden_rows = cut(hidden, {0, chunk.size()});  // [chunk, F]
  at::Tensor target = cut(x, chunk);                        // [chunk, W]
  ops::layer_norm(context, target, layer.norm2, layer.norm2_bias,
                  static_cast<float>(vision.norm_epsilon), norm_rows);
  ops::linear(context, norm_rows, layer.up, layer.up_bias, hidden_rows);
  ops::gelu(context, hidden_rows);
  add({ffn_sum, hidden_rows, layer.down, layer.down_bias, layer.ffn_gate}, target);
}

void VisionEncoder::State::begin_global_layers() {
  for_chunks({0, rows.total()}, [&](Range chunk) {
    at::Tensor target = cut(x, chunk);  // [chunk, W]
    ops::layer_norm(context, target, weights.norm_post, weights.norm_post_bias,
                    static_cast<float>(vision.norm_epsilon), target);
  });
  report("norm_post");
  for_chunks({0, rows.total()}, [&](Range chunk) {
    at::Tensor target = cut(x, chunk);  // [chunk, W]
    embedding->add_tiles(rows, chunk, target);
  });
  report("post_tile");
}

VisionEncoder::VisionEncoder(const LlamaConfig& config, WeightSource& source,
                             const ops::Context& context, parallel::Communicator& communicator,
                             const std::function<void(std::int64_t bytes)>& progress) {
  CARAVAN_ASSERT(config.vision, "a model without vision has no image encoder");
  state_ = std::make_unique<State>(config, source, context, communicator, progress);
}

VisionEncoder::~VisionEncoder() = default;

std::int64_t VisionEncoder::weight_bytes() const { return state_->weights.bytes; }
std::int64_t VisionEncoder::num_layers() const { return std::ssize(state_->weights.layers); }
std::int64_t VisionEncoder::num_tokens() const { return state_->rows.image_tokens(); }

void VisionEncoder::set_probe(
    std::function<void(std::string_view stage, const at::Tensor& rows)> probe) {
  state_->probe = std::move(probe);
}

void VisionEncoder::embed(const TileGrid& grid, std::span<const std::uint8_t> pixels) {
  State& state = *state_;
  const VisionConfig& vision = state.vision;
  CARAVAN_ASSERT(std::find(kTileGrids.begin(), kTileGrids.end(), grid) != kTileGrids.end(),
                 "no image has a grid of {} x {} tiles", grid.down, grid.across);
  const std::int64_t expected = grid.num_tiles() * 3 * vision.tile_size * vision.tile_size;
  CARAVAN_ASSERT(std::ssize(pixels) == expected, "{} bytes of pixels, {} tiles of {} x {} have {}",
                 pixels.size(), grid.num_tiles(), vision.tile_size, vision.tile_size, expected);
  state.rows = EncoderRows(vision, grid);
  state.next_layer = 0;
  for_chunks({0, state.rows.tile_rows()}, [&](Range chunk) {
    at::Tensor target = cut(state.x, chunk);  // [chunk, W]
    state.embedding->embed_patches(state.rows, chunk, pixels.data(), target);
    state.embedding->add_positions(state.rows, chunk, target);
    ops::layer_norm(state.context, target, state.weights.norm_pre, state.weights.norm_pre_bias,
                    static_cast<float>(vision.norm_epsilon), target);
  });
  cut(state.x, {state.rows.tile_rows(), state.rows.total()}).zero_();
  state.report("norm_pre");
}

void VisionEncoder::run_layer(std::int64_t layer) {
  State& state = *state_;
  const VisionConfig& vision = state.vision;
  CARAVAN_ASSERT(state.rows.total() > 0 && layer == state.next_layer && layer < num_layers(),
                 "encoder layer {} of {} was asked for, the image is at layer {}", layer,
                 num_layers(), state.next_layer);
  ++state.next_layer;
  const auto& saved = vision.saved_layers;
  const auto found = std::find(saved.begin(), saved.end(), layer);
  // The saved states lie interleaved by channel behind the final one.
  if (found != saved.end()) {
    state.save_features(vision.width + (found - saved.begin()), std::ssize(saved));
  }
  if (layer == vision.num_local_layers) state.begin_global_layers();
  const EncoderLayerWeights& weights = state.weights.layers[static_cast<std::size_t>(layer)];
  const Range all{0, state.rows.total()};
  for_chunks(all, [&](Range chunk) { state.store_keys(weights, chunk); });
  for_chunks(all, [&](Range chunk) {
    state.attend(weights, chunk);
    state.feed_forward(weights, chunk);
  });
  if (state.probe) {
    const bool local = layer < vision.num_local_layers;
    state.report(local ? fmt::format("local.{}", layer)
                       : fmt::format("global.{}", layer - vision.num_local_layers));
  }
  if (state.next_layer < num_layers()) return;
  if (vision.num_global_layers == 0) state.begin_global_layers();
  state.save_features(0, 1);
  if (state.probe) state.probe("features", cut(state.features, {0, num_tokens()}));
}

at::Tensor VisionEncoder::project(std::int64_t piece) {
  State& state = *state_;
  CARAVAN_ASSERT(state.next_layer == num_layers() && piece >= 0 && piece < num_pieces(),
                 "piece {} of {} after {} of {} encoder layers", piece, num_pieces(),
                 state.next_layer, num_layers());
  const Range tokens{piece * kChunk, std::min((piece + 1) * kChunk, num_tokens())};
  at::Tensor out = cut(state.projected, {0, tokens.size()});  // [tokens, D]
  out.zero_();
  const Range own = state.shape.hidden_rows;
  at::Tensor columns = out.narrow(1, own.begin, own.size());
  ops::linear(state.context, cut(state.features, tokens), state.weights.projector,
              state.weights.projector_bias, columns);
  columns.add_(0.0);  // no -0, which the sum over ranks would lose
  state.communicator.sum_disjoint(out);
  return out;
}

}  // namespace caravan::model
