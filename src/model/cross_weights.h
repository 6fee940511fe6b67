#pragma once
// This rank's weights of the layers with which the text decoder reads images. Private to src/model.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "caravan/ops/packed_weight.h"
#include "weight_loader.h"

namespace caravan::model {

/// H query heads, K key-value heads and F hidden columns are this rank's.
struct CrossLayerWeights {
  at::Tensor attn_norm;         // [D]
  ops::PackedWeight query;      // [H * d, D]
  ops::PackedWeight key_value;  // [2K * d, D]: keys, then values
  at::Tensor query_norm;        // [d]
  at::Tensor key_norm;          // [d]
  ops::PackedWeight output;     // [D, H * d], row-parallel
  float attention_gate = 0;     // tanh applied
  at::Tensor ffn_norm;          // [D]
  ops::PackedWeight gate_up;    // [2F, D]: gate columns, then up columns
  ops::PackedWeight down;       // [D, F], row-parallel
  float ffn_gate = 0;           // tanh applied
};

struct CrossWeights {
  at::Tensor extra_embedding;  // [extra embeddings, D]
  std::vector<CrossLayerWeights> layers;
  std::int64_t bytes = 0;  // of the matrices
};

/// @pre config.vision
CrossWeights load_cross_weights(WeightLoader& loader);

}  // namespace caravan::model
