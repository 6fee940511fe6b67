#pragma once
// What a decoder that reads images has beyond one for text: the encoder, the keys and values of
// images, the gated cross-attention layers and the extra embeddings. Private to src/model.
//
// A row that sees no image passes through unchanged, bit for bit: only rows that see one are
// gathered, computed and put back.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "caravan/model/decoder.h"
#include "caravan/model/vision_encoder.h"
#include "caravan/ops/full_attention.h"
#include "cross_weights.h"
#include "row_sum.h"

namespace caravan::model {

/// Buffers of the decoder that are free between two of its layers.
struct LayerBuffers {
  at::Tensor normed;     // [N, D]
  at::Tensor sum;        // [N, D]
  at::Tensor qkv;        // [N, (H + 2K) * d]
  at::Tensor attended;   // [N, H * d]
  at::Tensor partials;   // flat, [nodes, N, D]
  at::Tensor gate_up;    // [N, 2F]
  at::Tensor activated;  // [N, F]
};

/// What the layers share with the decoder that they belong to; outlives them.
struct LayerHost {
  const LlamaConfig& config;
  const ops::Context& context;
  parallel::Communicator& communicator;
  const ops::HeadMap& heads;
  const DecoderLimits& limits;
};

class ImageLayers {
 public:
  /// Reads this rank's weights. Not collective. @pre host.config.vision
  ImageLayers(const LayerHost& host, WeightSource& source, LayerBuffers buffers,
              const std::function<void(std::int64_t bytes)>& progress);

  std::int64_t weight_bytes() const { return weights_.bytes + encoder_.weight_bytes(); }
  VisionEncoder& encoder() { return encoder_; }

  /// @throws InternalError unless the plan's image part is sound.
  void check(const StepPlan& plan) const;
  /// Encodes what the plan asks for and stores keys and values. Collective.
  void run_work(const StepPlan& plan);
  /// Notes which rows of the plan see which images; the plan must live until the step's end.
  void begin_step(const StepPlan& plan);
  /// Puts the embeddings of ids behind the vocabulary into their rows of x.
  void embed_extra(std::span<const std::int32_t> tokens, at::Tensor& x) const;
  /// The cross-attention layer that runs right before a text layer; -1 if there is none or no row
  /// sees an image.
  std::int64_t layer_before(std::int64_t text_layer) const;
  /// Collective. x [N, D].
  void run(std::int64_t layer, at::Tensor& x);

 private:
  void store(const at::Tensor& tokens, std::int64_t first, std::span<const std::int32_t> blocks);
  void attend(const CrossLayerWeights& weights, std::int64_t layer);
  void feed_forward(const CrossLayerWeights& weights);
  void make_views();

  const LlamaConfig& config_;
  const ops::Context& context_;
  parallel::Communicator& communicator_;
  const ops::HeadMap& heads_;
  LayerBuffers buffers_;
  CrossWeights weights_;
  VisionEncoder encoder_;
  ops::KvPool images_;  // keys (normalised) and values of image tokens
  RowSum attention_sum_;
  RowSum ffn_sum_;
  at::Tensor seeing_;  // [N, D]

  /// Views of the buffers for the n rows that see an image, made once a step: making one allocates.
  struct Views {
    at::Tensor x;                   // [n, D]: those rows
    at::Tensor normed;              // [n, D]
    at::Tensor sum;                 // [n, D]
    at::Tensor queries;             // [n, H * d]
    at::Tensor attended;            // [n, H * d]
    at::Tensor attention_partials;  // [nodes, n, D]
    at::Tensor gate_up;             // [n, 2F]
    at::Tensor activated;           // [n, F]
    at::Tensor ffn_partials;        // [nodes, n, D]
  };

  // Of the current step.
  std::vector<std::int32_t> rows_;  // of x that see an image
  std::vector<ops::KeyRun> runs_;
  std::vector<ops::VisibleRows> ranges_;  // rows: those of the views
  Views views_;
};

}  // namespace caravan::model
