#pragma once
// The Llama text decoder on this rank: weights, buffers and the forward pass of one step over a
// ragged batch; of models with vision also the image encoder and the layers that read images.
//
// Every rank of the group calls the same functions in the same order with the same plan. No
// allocation inside the layer loop. Leaves out: who runs in a step (engine/scheduler), sampling
// (engine/sampler), reading files (WeightSource).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "caravan/core/dtype.h"
#include "caravan/model/config.h"
#include "caravan/model/shard_plan.h"
#include "caravan/model/step_plan.h"
#include "caravan/model/vision_encoder.h"
#include "caravan/model/weight_source.h"
#include "caravan/ops/context.h"
#include "caravan/ops/elementwise.h"
#include "caravan/ops/kv_pool.h"
#include "caravan/parallel/communicator.h"

namespace caravan::model {

struct DecoderLimits {
  std::int64_t max_step_tokens = 512;  // N of the largest step
  std::int64_t kv_blocks = 0;          // blocks of ops::KvPool::kBlockTokens tokens
  std::int64_t num_threads = 1;        // of the operations' context; only activation_bytes asks
  std::int64_t image_blocks = 0;       // blocks of as many image tokens; 0: text alone
  std::int64_t seen_blocks = 0;  // of images that a row sees, at most; only activation_bytes asks
  DType kv_dtype = DType::kFloat32;  // of the cache, and of images' keys and values; or bf16
};

/// Bytes that the keys and values of KvPool::kBlockTokens image tokens take on this rank, in all
/// layers that read images; an image takes a block for every 16 tokens or part of them. 0 for
/// models without vision.
std::int64_t image_block_bytes(const LlamaConfig& config, const ShardShape& shape,
                               DType kv_dtype = DType::kFloat32);

/// Bytes this rank needs besides weights, KV cache and images' keys and values.
std::int64_t activation_bytes(const LlamaConfig& config, const ShardShape& shape,
                              const DecoderLimits& limits);

class Decoder {
 public:
  /// Rows of logits that are computed and gathered at a time.
  static constexpr std::int64_t kLogitChunk = 64;

  /// Reads this rank's weights. `progress` (may be empty) is told bytes as they arrive.
  ///
  /// Collective: no (each rank reads by itself); agree on success afterwards.
  /// @throws ConfigError, IoError from the source.
  Decoder(const LlamaConfig& config, WeightSource& source, const ops::Context& context,
          parallel::Communicator& communicator, const DecoderLimits& limits,
          const std::function<void(std::int64_t bytes)>& progress = {});
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  const LlamaConfig& config() const;
  const ShardShape& shape() const;
  std::int64_t weight_bytes() const;
  /// Of these, what a step of text reads: not the layers of images, and not an embedding that is no
  /// head too.
  std::int64_t step_weight_bytes() const;

  /// Does the plan's work on images, then runs embedding, layers and final norm for the plan's
  /// rows and keeps the normalised rows that need logits. Collective. @pre plan.tokens.size() <=
  /// max_step_tokens, ids in [0, V) or those of extra embeddings, block ids below kv_blocks and
  /// image_blocks.
  void forward(const StepPlan& plan);

  /// Best token of each of plan.argmax_rows, on every rank: largest logit, lowest id on ties.
  /// Valid until the next call. Collective, after forward. A NaN logit is returned as such.
  std::span<const ops::ArgMax> argmax();

  /// Logits of plan.logit_rows, at most kLogitChunk rows a call: `use(i, row)` is called on rank 0
  /// for i-th row with V float32 values valid during the call. Collective, after forward.
  void logits(const std::function<void(std::int64_t index, std::span<const float> row)>& use);
  /// As logits(), with all rows of a call at once: those from `begin` on, one behind the other.
  void logit_blocks(
      const std::function<void(std::int64_t begin, std::span<const float> rows)>& use);

  /// For tests: residual stream after `layer` layers of the last forward ([N, D]) is passed to
  /// `probe` (-1: embedding; num_layers: final norm of all rows; -2 - c: layer c of those that read
  /// images, where it ran). Slow; empty by default.
  void set_probe(std::function<void(std::int64_t layer, const at::Tensor& x)> probe);

  /// For tests: the image encoder. @pre config().vision
  VisionEncoder& encoder();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace caravan::model
