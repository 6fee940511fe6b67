#pragma once
// This rank's weights of the image encoder in the form the operations want. Private to src/model.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "caravan/ops/packed_weight.h"
#include "weight_loader.h"

namespace caravan::model {

/// H heads of d and F hidden columns are this rank's; W is the encoder's width.
struct EncoderLayerWeights {
  at::Tensor norm1;  // [W]
  at::Tensor norm1_bias;
  ops::PackedWeight query;   // [H * d, W]
  ops::PackedWeight key;     // [H * d, W]
  ops::PackedWeight value;   // [H * d, W]
  ops::PackedWeight output;  // [W, H * d], row-parallel
  float attention_gate = 1;  // tanh applied; 1 where the layer has none
  at::Tensor norm2;          // [W]
  at::Tensor norm2_bias;
  ops::PackedWeight up;    // [F, W]
  at::Tensor up_bias;      // [F]
  ops::PackedWeight down;  // [W, F], row-parallel
  at::Tensor down_bias;    // [W], added once, after the sum
  float ffn_gate = 1;
};

struct VisionWeights {
  ops::PackedWeight patch;          // [W, 3 * P * P]
  at::Tensor class_token;           // [W]
  ops::PackedWeight position;       // rows: the tokens of a tile
  ops::PackedWeight position_tile;  // rows: cell * N + token
  ops::PackedWeight pre_tile;       // rows: cells
  ops::PackedWeight post_tile;      // rows: cells
  float position_gate = 0;          // tanh applied to all three
  float pre_tile_gate = 0;
  float post_tile_gate = 0;
  at::Tensor norm_pre;  // [W]
  at::Tensor norm_pre_bias;
  at::Tensor norm_post;
  at::Tensor norm_post_bias;
  std::vector<EncoderLayerWeights> layers;  // local, then global
  ops::PackedWeight projector;              // [outputs of this rank, feature size]
  at::Tensor projector_bias;
  std::int64_t bytes = 0;  // of the matrices
};

/// @pre config.vision
VisionWeights load_vision_weights(WeightLoader& loader);

}  // namespace caravan::model
