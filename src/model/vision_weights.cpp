#include "vision_weights.h"

#include <fmt/format.h>

#include <string>

namespace caravan::model {
namespace {

at::Tensor sharded_vector(WeightLoader& loader, const std::string& name) {
  const Range rows = loader.shape().rows_of(loader.spec(name), loader.config());
  at::Tensor vector = at::empty({rows.size()}, at::kFloat);
  loader.read_vector(name, 0, vector);
  return vector;
}

enum class Gates { kNone, kBoth };

EncoderLayerWeights load_layer(WeightLoader& loader, const std::string& prefix, Gates gates) {
  EncoderLayerWeights weights;
  weights.norm1 = loader.whole_vector(prefix + "norm1");
  weights.norm1_bias = loader.whole_vector(prefix + "norm1.bias");
  weights.query = loader.matrix(prefix + "wq");
  weights.key = loader.matrix(prefix + "wk");
  weights.value = loader.matrix(prefix + "wv");
  weights.output = loader.transposed_matrix(prefix + "wo");
  weights.norm2 = loader.whole_vector(prefix + "norm2");
  weights.norm2_bias = loader.whole_vector(prefix + "norm2.bias");
  weights.up = loader.matrix(prefix + "w1");
  weights.up_bias = sharded_vector(loader, prefix + "w1.bias");
  weights.down = loader.transposed_matrix(prefix + "w2");
  weights.down_bias = loader.whole_vector(prefix + "w2.bias");
  if (gates == Gates::kBoth) {
    weights.attention_gate = loader.gate(prefix + "gate_attn");
    weights.ffn_gate = loader.gate(prefix + "gate_ffn");
  }
  return weights;
}

std::int64_t matrix_bytes(const EncoderLayerWeights& layer) {
  return layer.query.bytes() + layer.key.bytes() + layer.value.bytes() + layer.output.bytes() +
         layer.up.bytes() + layer.down.bytes();
}

}  // namespace

VisionWeights load_vision_weights(WeightLoader& loader) {
  const VisionConfig& vision = *loader.config().vision;
  VisionWeights weights;
  weights.patch = loader.matrix("vision.patch");
  weights.class_token = loader.whole_vector("vision.class");
  weights.position = loader.matrix("vision.position");
  weights.position_tile = loader.matrix("vision.position_tile");
  weights.position_gate = loader.gate("vision.position_gate");
  weights.pre_tile = loader.matrix("vision.pre_tile");
  weights.pre_tile_gate = loader.gate("vision.pre_tile_gate");
  weights.post_tile = loader.matrix("vision.post_tile");
  weights.post_tile_gate = loader.gate("vision.post_tile_gate");
  weights.norm_pre = loader.whole_vector("vision.norm_pre");
  weights.norm_pre_bias = loader.whole_vector("vision.norm_pre.bias");
  weights.norm_post = loader.whole_vector("vision.norm_post");
  weights.norm_post_bias = loader.whole_vector("vision.norm_post.bias");
  for (std::int64_t layer = 0; layer < vision.num_local_layers; ++layer) {
    weights.layers.push_back(
        load_layer(loader, fmt::format("vision.local.{}.", layer), Gates::kNone));
  }
  for (std::int64_t layer = 0; layer < vision.num_global_layers; ++layer) {
    weights.layers.push_back(
        load_layer(loader, fmt::format("vision.global.{}.", layer), Gates::kBoth));
  }
  weights.projector = loader.matrix("vision.projector");
  weights.projector_bias = sharded_vector(loader, "vision.projector.bias");
  weights.bytes = weights.patch.bytes() + weights.position.bytes() + weights.position_tile.bytes() +
                  weights.pre_tile.bytes() + weights.post_tile.bytes() + weights.projector.bytes();
  for (const EncoderLayerWeights& layer : weights.layers) weights.bytes += matrix_bytes(layer);
  return weights;
}

}  // namespace caravan::model
