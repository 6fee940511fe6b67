#include "decoder_weights.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>

#include "caravan/core/error.h"

namespace caravan::model {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{16} << 20;

class WeightLoader {
 public:
  WeightLoader(const LlamaConfig& config, const ShardShape& shape, WeightSource& source,
               const std::function<void(std::int64_t)>& progress)
      : config_(config), shape_(shape), source_(source), progress_(progress) {
    for (TensorSpec& spec : tensor_specs(config)) {
      std::string name = spec.name;
      specs_.emplace(std::move(name), std::move(spec));
    }
  }

  const TensorSpec& spec(const std::string& name) const { return specs_.at(name); }
  DType dtype(const std::string& name) const { return source_.dtype(spec(name)); }

  /// Calls `use(first, count, data)` for pieces of this rank's rows, `first` counted from its own
  /// first row.
  template <typename Use>
  void read(const std::string& name, const Use& use) {
    const TensorSpec& tensor = spec(name);
    const Range rows = shape_.rows_of(tensor, config_);
    const std::int64_t row_bytes = tensor.columns * element_bytes(source_.dtype(tensor));
    const std::int64_t bands =
        std::max<std::int64_t>(1, kPieceBytes / (tensor.band_rows * row_bytes));
    const std::int64_t step = bands * tensor.band_rows;
    for (std::int64_t begin = rows.begin; begin < rows.end; begin += step) {
      const Range piece{begin, std::min(begin + step, rows.end)};
      const auto piece_bytes = static_cast<std::size_t>(piece.size() * row_bytes);
      if (buffer_.size() < piece_bytes) buffer_.resize(piece_bytes);
      source_.read_rows(tensor, piece, buffer_.data());
      use(piece.begin - rows.begin, piece.size(), buffer_.data());
      if (progress_) progress_(piece.size() * row_bytes);
    }
  }

  /// Stores a tensor's rows as output features `first_output`... of `weight`.
  void read_outputs(const std::string& name, std::int64_t first_output, ops::PackedWeight& weight) {
    check_dtype(name, weight);
    read(name, [&](std::int64_t first, std::int64_t count, const std::byte* data) {
      weight.set_output_rows(first_output + first, count, data);
    });
  }
  /// Stores the rows of a transposed tensor as input features of `weight`.
  void read_inputs(const std::string& name, ops::PackedWeight& weight) {
    check_dtype(name, weight);
    read(name, [&](std::int64_t first, std::int64_t count, const std::byte* data) {
      weight.set_input_rows(first, count, data);
    });
  }
  /// Stores a vector (or this rank's part of it) as float32 at `target[offset]`...
  void read_vector(const std::string& name, std::int64_t offset, at::Tensor& target) {
    const DType type = dtype(name);
    auto* out = target.data_ptr<float>() + offset;
    read(name, [&](std::int64_t first, std::int64_t count, const std::byte* data) {
      for (std::int64_t i = 0; i < count; ++i) out[first + i] = load_element(data, type, i);
    });
  }
  at::Tensor whole_vector(const std::string& name) {
    at::Tensor target = at::empty({spec(name).rows}, at::kFloat);
    read_vector(name, 0, target);
    return target;
  }

  const LlamaConfig& config() const { return config_; }
  const ShardShape& shape() const { return shape_; }

 private:
  void check_dtype(const std::string& name, const ops::PackedWeight& weight) const {
    CARAVAN_CHECK(dtype(name) == weight.dtype(), ConfigError,
                  "tensor {} is stored as {}, the tensors it is computed with as {}: convert the "
                  "checkpoint with one --dtype",
                  name, dtype_name(dtype(name)), dtype_name(weight.dtype()));
  }

  const LlamaConfig& config_;
  const ShardShape& shape_;
  WeightSource& source_;
  const std::function<void(std::int64_t)>& progress_;
  std::map<std::string, TensorSpec> specs_;
  std::vector<std::byte> buffer_;
};

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
  weights.qkv = ops::PackedWeight(query_size + 2 * kv_size, width, loader.dtype(name("wq")));
  loader.read_outputs(name("wq"), 0, weights.qkv);
  loader.read_outputs(name("wk"), query_size, weights.qkv);
  loader.read_outputs(name("wv"), query_size + kv_size, weights.qkv);
  weights.output = ops::PackedWeight(width, query_size, loader.dtype(name("wo")));
  loader.read_inputs(name("wo"), weights.output);
  if (config.attention_bias) {
    weights.qkv_bias = at::empty({query_size + 2 * kv_size}, at::kFloat);
    loader.read_vector(name("wq.bias"), 0, weights.qkv_bias);
    loader.read_vector(name("wk.bias"), query_size, weights.qkv_bias);
    loader.read_vector(name("wv.bias"), query_size + kv_size, weights.qkv_bias);
    weights.output_bias = loader.whole_vector(name("wo.bias"));
  }
  weights.ffn_norm = loader.whole_vector(name("ffn_norm"));
  weights.gate_up = ops::PackedWeight(2 * ffn, width, loader.dtype(name("w1")));
  loader.read_outputs(name("w1"), 0, weights.gate_up);
  loader.read_outputs(name("w3"), ffn, weights.gate_up);
  weights.down = ops::PackedWeight(width, ffn, loader.dtype(name("w2")));
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
                                    WeightSource& source,
                                    const std::function<void(std::int64_t bytes)>& progress) {
  WeightLoader loader(config, shape, source, progress);
  DecoderWeights weights;
  weights.tied = config.tied_embeddings;
  weights.embedding =
      ops::PackedWeight(shape.local_vocab_size(), config.hidden_size, loader.dtype("text.embed"));
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
    weights.head =
        ops::PackedWeight(shape.local_vocab_size(), config.hidden_size, loader.dtype("text.head"));
    loader.read_outputs("text.head", 0, weights.head);
    weights.bytes += weights.head.bytes();
  }
  return weights;
}

}  // namespace caravan::model
