#pragma once
// A small Llama model in source form, generated: a Hugging Face folder or a GGUF file, whose values
// follow from tensor name and position.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "caravan/checkpoint/tensor_names.h"
#include "caravan/model/config.h"
#include "caravan/model/shard_plan.h"
#include "generated_files.h"
#include "support/temporary_folder.h"

namespace caravan::test {

inline const std::string kCheckpoints = std::string(CARAVAN_TEST_DATA) + "/checkpoints";

/// Sizes that divide nothing; the tokenizer is that of tiny-uneven (1531 ids).
inline model::LlamaConfig small_config() {
  model::LlamaConfig config;
  config.vocab_size = 1531;
  config.hidden_size = 20;
  config.ffn_size = 70;
  config.num_layers = 2;
  config.num_heads = 3;
  config.num_kv_heads = 1;
  config.head_dim = 6;
  config.max_positions = 100;
  config.tied_embeddings = true;
  config.attention_bias = true;
  config.mlp_bias = true;
  return config;
}

/// Element (row, column) of a tensor in torch's orientation; exact in every stored type.
inline float source_value(std::string_view canonical_name, std::int64_t row, std::int64_t column) {
  const auto seed = static_cast<std::int64_t>(std::hash<std::string_view>{}(canonical_name) % 97);
  return static_cast<float>((seed + 31 * row + 7 * column) % 251 - 125) / 64.0F;
}

struct TorchTensor {
  std::string canonical_name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

/// All tensors of a configuration with source_value in them; a vector is one column.
inline std::vector<TorchTensor> torch_tensors(const model::LlamaConfig& config) {
  std::vector<TorchTensor> tensors;
  for (const model::TensorSpec& spec : model::tensor_specs(config)) {
    TorchTensor tensor;
    tensor.canonical_name = spec.name;
    const std::int64_t rows = spec.transposed ? spec.columns : spec.rows;
    const std::int64_t columns = spec.transposed ? spec.rows : spec.columns;
    tensor.shape = spec.is_vector ? std::vector{rows} : std::vector{rows, columns};
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column)
        tensor.values.push_back(source_value(spec.name, row, column));
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

inline nlohmann::json hf_config_json(const model::LlamaConfig& config) {
  return {{"model_type", "llama"},
          {"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", config.vocab_size},
          {"hidden_size", config.hidden_size},
          {"intermediate_size", config.ffn_size},
          {"num_hidden_layers", config.num_layers},
          {"num_attention_heads", config.num_heads},
          {"num_key_value_heads", config.num_kv_heads},
          {"head_dim", config.head_dim},
          {"max_position_embeddings", config.max_positions},
          {"rms_norm_eps", config.norm_epsilon},
          {"rope_theta", config.rope_theta},
          {"tie_word_embeddings", config.tied_embeddings},
          {"attention_bias", config.attention_bias},
          {"mlp_bias", config.mlp_bias},
          {"eos_token_id", 2}};
}

/// A Hugging Face folder whose parts can be changed before it is written.
class HfFolder {
 public:
  explicit HfFolder(const model::LlamaConfig& config = small_config())
      : config_json(hf_config_json(config)) {
    for (const TorchTensor& tensor : torch_tensors(config)) {
      weights.add(checkpoint::source_tensor_name(tensor.canonical_name,
                                                 checkpoint::NameStyle::kHuggingFace),
                  tensor.shape, tensor.values);
    }
    std::filesystem::create_directory(path());
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
      std::filesystem::copy_file(kCheckpoints + "/tiny-uneven/" + name, path() + "/" + name);
  }

  std::string path() const { return folder_.file("small-model"); }
  std::string file(const std::string& name) const { return path() + "/" + name; }
  void write(const std::string& name, std::string_view content) const {
    folder_.write("small-model/" + name, content);
  }
  void remove(const std::string& name) const { std::filesystem::remove(file(name)); }
  /// Writes config.json and model.safetensors as they are now; gives the folder.
  std::string write() const {
    write("config.json", config_json.dump());
    write("model.safetensors", weights.file());
    return path();
  }
  /// A name beside the model folder.
  std::string beside(const std::string& name) const { return folder_.file(name); }

  nlohmann::json config_json;
  SafetensorsBuilder weights;

 private:
  TemporaryFolder folder_;
};

/// A tensor of a GGUF file, in float32.
inline void add_gguf_tensor(GgufBuilder& gguf, const TorchTensor& tensor) {
  const std::vector<std::uint64_t> dims(tensor.shape.rbegin(), tensor.shape.rend());
  gguf.tensor(checkpoint::source_tensor_name(tensor.canonical_name, checkpoint::NameStyle::kGguf),
              dims, 0, bytes_of(tensor.values));
}

inline std::vector<std::string> gguf_tokens() {
  return byte_tokens({"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>"});
}

/// The keys of the same kind of model as GGUF, with a byte-level tokenizer.
inline GgufBuilder gguf_metadata(const model::LlamaConfig& config) {
  const std::vector<std::string> tokens = gguf_tokens();
  std::vector<std::int32_t> types(tokens.size(), 1);
  for (std::size_t i = 256; i < tokens.size(); ++i) types[i] = 3;
  const auto u32 = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  GgufBuilder gguf;
  gguf.text("general.architecture", "llama");
  gguf.text("general.name", "Generated");
  gguf.u32("llama.context_length", u32(config.max_positions));
  gguf.u32("llama.embedding_length", u32(config.hidden_size));
  gguf.u32("llama.block_count", u32(config.num_layers));
  gguf.u32("llama.feed_forward_length", u32(config.ffn_size));
  gguf.u32("llama.attention.head_count", u32(config.num_heads));
  gguf.u32("llama.attention.head_count_kv", u32(config.num_kv_heads));
  gguf.u32("llama.attention.key_length", u32(config.head_dim));
  gguf.f32("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  gguf.text("tokenizer.ggml.model", "gpt2");
  gguf.text("tokenizer.ggml.pre", "smollm");
  gguf.texts("tokenizer.ggml.tokens", tokens);
  gguf.integers("tokenizer.ggml.token_type", types);
  gguf.texts("tokenizer.ggml.merges", {});
  gguf.u32("tokenizer.ggml.bos_token_id", 256);
  gguf.u32("tokenizer.ggml.eos_token_id", 257);
  return gguf;
}

/// A whole GGUF model (float32, no biases).
inline GgufBuilder gguf_model(model::LlamaConfig config) {
  GgufBuilder gguf = gguf_metadata(config);
  config.vocab_size = static_cast<std::int64_t>(gguf_tokens().size());
  for (const TorchTensor& tensor : torch_tensors(config)) add_gguf_tensor(gguf, tensor);
  return gguf;
}

inline model::LlamaConfig small_gguf_config() {
  model::LlamaConfig config = small_config();
  config.attention_bias = false;
  config.mlp_bias = false;
  return config;
}

}  // namespace caravan::test
