#include "cross_weights.h"

#include <fmt/format.h>

namespace caravan::model {
namespace {

at::Tensor whole_matrix(WeightLoader& loader, const std::string& name) {
  const TensorSpec& spec = loader.spec(name);
  const DType type = loader.dtype(name);
  at::Tensor matrix = at::empty({spec.rows, spec.columns}, at::kFloat);
  auto* out = matrix.data_ptr<float>();
  loader.read(name, [&](std::int64_t first, std::int64_t count, const std::byte* data) {
    for (std::int64_t i = 0; i < count * spec.columns; ++i) {
      out[first * spec.columns + i] = load_element(data, type, i);
    }
  });
  return matrix;
}

CrossLayerWeights load_layer(WeightLoader& loader, std::int64_t layer) {
  const LlamaConfig& config = loader.config();
  const ShardShape& shape = loader.shape();
  const auto name = [layer](const char* part) {
    return fmt::format("text.cross.{}.{}", layer, part);
  };
  const std::int64_t kv_size = shape.local_num_kv_heads() * config.head_dim;
  const std::int64_t ffn = shape.local_ffn_size();
  CrossLayerWeights weights;
  weights.attn_norm = loader.whole_vector(name("attn_norm"));
  weights.query = loader.matrix(name("wq"));
  weights.key_value = loader.empty_matrix(name("wk"), 2 * kv_size, config.hidden_size);
  loader.read_outputs(name("wk"), 0, weights.key_value);
  loader.read_outputs(name("wv"), kv_size, weights.key_value);
  weights.query_norm = loader.whole_vector(name("q_norm"));
  weights.key_norm = loader.whole_vector(name("k_norm"));
  weights.output = loader.transposed_matrix(name("wo"));
  weights.attention_gate = loader.gate(name("gate_attn"));
  weights.ffn_norm = loader.whole_vector(name("ffn_norm"));
  weights.gate_up = loader.empty_matrix(name("w1"), 2 * ffn, config.hidden_size);
  loader.read_outputs(name("w1"), 0, weights.gate_up);
  loader.read_outputs(name("w3"), ffn, weights.gate_up);
  weights.down = loader.transposed_matrix(name("w2"));
  weights.ffn_gate = loader.gate(name("gate_ffn"));
  return weights;
}

}  // namespace

CrossWeights load_cross_weights(WeightLoader& loader) {
  CrossWeights weights;
  weights.extra_embedding = whole_matrix(loader, "text.embed_extra");
  weights.bytes = weights.extra_embedding.numel() * std::int64_t{sizeof(float)};
  for (std::int64_t layer = 0; layer < loader.config().vision->num_cross_layers(); ++layer) {
    weights.layers.push_back(load_layer(loader, layer));
    const CrossLayerWeights& loaded = weights.layers.back();
    weights.bytes += loaded.query.bytes() + loaded.key_value.bytes() + loaded.output.bytes() +
                     loaded.gate_up.bytes() + loaded.down.bytes();
  }
  return weights;
}

}  // namespace caravan::model
