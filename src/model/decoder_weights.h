#pragma once
// This rank's weights of the decoder in the form the operations want, and loading them in pieces.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "caravan/model/config.h"
#include "caravan/model/shard_plan.h"
#include "caravan/model/weight_source.h"
#include "caravan/ops/packed_weight.h"

namespace caravan::model {

struct LayerWeights {
  at::Tensor attn_norm;       // [D]
  ops::PackedWeight qkv;      // [(H + 2K) * d, D]: query, key, value heads of this rank
  at::Tensor qkv_bias;        // [(H + 2K) * d] or undefined
  ops::PackedWeight output;   // [D, H * d], row-parallel
  at::Tensor output_bias;     // [D] or undefined; added once, after the sum
  at::Tensor ffn_norm;        // [D]
  ops::PackedWeight gate_up;  // [2F, D]: gate columns, then up columns of this rank
  at::Tensor gate_up_bias;    // [2F] or undefined
  ops::PackedWeight down;     // [D, F], row-parallel
  at::Tensor down_bias;       // [D] or undefined
};

struct DecoderWeights {
  ops::PackedWeight embedding;  // [vocabulary rows of this rank, D]
  std::vector<LayerWeights> layers;
  at::Tensor final_norm;   // [D]
  ops::PackedWeight head;  // empty when tied
  bool tied = false;
  const ops::PackedWeight& output_head() const { return tied ? embedding : head; }
  std::int64_t bytes = 0;
};

/// Reads this rank's rows of every tensor, at most about 16 MiB at a time.
/// @throws ConfigError, IoError from the source.
DecoderWeights load_decoder_weights(const LlamaConfig& config, const ShardShape& shape,
                                    WeightSource& source, ops::Compute compute,
                                    const std::function<void(std::int64_t bytes)>& progress);

}  // namespace caravan::model
