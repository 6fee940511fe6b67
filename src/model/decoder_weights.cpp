#include "decoder_weights.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "weight_loader.h"

namespace caravan::model {
namespace {

LayerWeights load_layer(WeightLoader& loader, std::int64_t layer) {
  const LlamaConfig& config = loader.config();
  const ShardShape& shape = loader.shape();
  const auto name = [layer](const char* part) {
    return fmt::format("text.layer.{}.{}", layer, part);
  };
  const std::int64_t width = config.hidden_size;
  const std::int64_t query_size = shape.local_num_heads() * config.head_dim;
  const std::int64_t kv_size = shape.local_num_kv_heads() * config.head_dim;
  const std::int64_t ffn = shape.local_ffn_size();

  LayerWeights weights;
  weights.attn_norm = loader.whole_vector(name("attn_norm"));
  weights.qkv = loader.empty_matrix(name("wq"), query_size + 2 * kv_size, width);
  loader.read_outputs(name("wq"), 0, weights.qkv);
  loader.read_outputs(name("wk"), query_size, weights.qkv);
  loader.read_outputs(name("wv"), query_size + kv_size, weights.qkv);
  weights.output = loader.empty_matrix(name("wo"), width, query_size);
  loader.read_inputs(name("wo"), weights.output);
  if (config.attention_bias) {
    weights.qkv_bias = at::empty({query_size + 2 * kv_size}, at::kFloat);
    loader.read_vector(name("wq.bias"), 0, weights.qkv_bias);
    loader.read_vector(name("wk.bias"), query_size, weights.qkv_bias);
    loader.read_vector(name("wv.bias"), query_size + kv_size, weights.qkv_bias);
    weights.output_bias = loader.whole_vector(name("wo.bias"));
  }
  weights.ffn_norm = loader.whole_vector(name("ffn_norm"));
  weights.gate_up = loader.empty_matrix(name("w1"), 2 * ffn, width);
  loader.read_outputs(name("w1"), 0, weights.gate_up);
  loader.read_outputs(name("w3"), ffn, weights.gate_up);
  weights.down = loader.empty_matrix(name("w2"), width, ffn);
  loader.read_inputs(name("w2"), weights.down);
  if (config.mlp_bias) {
    weights.gate_up_bias = at::empty({2 * ffn}, at::kFloat);
    loader.read_vector(name("w1.bias"), 0, weights.gate_up_bias);
    loader.read_vector(name("w3.bias"), ffn, weights.gate_up_bias);
    weights.down_bias = loader.whole_vector(name("w2.bias"));
  }
  return weights;
}

}  // namespace

DecoderWeights load_decoder_weights(const LlamaConfig& config, const ShardShape& shape,
                                    WeightSource& source, ops::Compute compute,
                                    const std::function<void(std::int64_t bytes)>& progress) {
  WeightLoader loader(config, shape, source, compute, progress);
  DecoderWeights weights;
  weights.tied = config.tied_embeddings;
  weights.embedding =
      loader.empty_matrix("text.embed", shape.local_vocab_size(), config.hidden_size);
  loader.read_outputs("text.embed", 0, weights.embedding);
  weights.bytes = weights.embedding.bytes();
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    weights.layers.push_back(load_layer(loader, layer));
    const LayerWeights& loaded = weights.layers.back();
    weights.bytes +=
        loaded.qkv.bytes() + loaded.output.bytes() + loaded.gate_up.bytes() + loaded.down.bytes();
  }
  weights.final_norm = loader.whole_vector("text.final_norm");
  if (!config.tied_embeddings) {
    weights.head = loader.empty_matrix("text.head", shape.local_vocab_size(), config.hidden_size);
    loader.read_outputs("text.head", 0, weights.head);
    weights.bytes += weights.head.bytes();
  }
  return weights;
}

}  // namespace caravan::model
