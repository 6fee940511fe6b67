// Writes a Hugging Face folder of any size with random weights, to measure conversions:
//
//   make_synthetic_checkpoint FOLDER TOKENIZER_FOLDER [SHARDS [LAYERS]]
//
// The sizes are those of Llama 3.1 8B in bf16 (16 GB with its 32 layers, in 4 shards). Values are
// noise with a spread as weights have it: a file of zeros would be read from nowhere.

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "caravan/checkpoint/tensor_names.h"
#include "caravan/core/dtype.h"
#include "caravan/model/config.h"
#include "caravan/model/shard_plan.h"

namespace {

namespace fs = std::filesystem;
using namespace caravan;

model::LlamaConfig llama_8b(std::int64_t num_layers) {
  model::LlamaConfig config;
  config.vocab_size = 128256;
  config.hidden_size = 4096;
  config.ffn_size = 14336;
  config.num_layers = num_layers;
  config.num_heads = 32;
  config.num_kv_heads = 8;
  config.head_dim = 128;
  config.max_positions = 8192;
  config.rope_theta = 500000;
  return config;
}

void write_config(const fs::path& folder, const model::LlamaConfig& config) {
  const nlohmann::json json = {{"model_type", "llama"},
                               {"architectures", {"LlamaForCausalLM"}},
                               {"vocab_size", config.vocab_size},
                               {"hidden_size", config.hidden_size},
                               {"intermediate_size", config.ffn_size},
                               {"num_hidden_layers", config.num_layers},
                               {"num_attention_heads", config.num_heads},
                               {"num_key_value_heads", config.num_kv_heads},
                               {"max_position_embeddings", config.max_positions},
                               {"rms_norm_eps", config.norm_epsilon},
                               {"rope_theta", config.rope_theta},
                               {"torch_dtype", "bfloat16"}};
  std::ofstream(folder / "config.json") << json.dump(1);
}

class Noise {
 public:
  Noise() {
    std::mt19937_64 random(20260101);
    std::normal_distribution<float> normal(0.0F, 0.02F);
    for (std::uint16_t& value : values_) value = float_to_bf16(normal(random));
  }
  void write(std::ofstream& out, std::int64_t elements) {
    while (elements > 0) {
      const auto piece = std::min<std::int64_t>(elements, std::ssize(values_));
      out.write(reinterpret_cast<const char*>(values_.data()), piece * 2);
      elements -= piece;
    }
  }

 private:
  std::vector<std::uint16_t> values_ = std::vector<std::uint16_t>((1 << 20) + 7);
};

void write_shard(const fs::path& path, const std::vector<model::TensorSpec>& specs, Noise& noise) {
  nlohmann::json header;
  std::int64_t offset = 0;
  for (const model::TensorSpec& spec : specs) {
    const std::int64_t bytes = 2 * spec.num_elements();
    nlohmann::json shape = {spec.transposed ? spec.columns : spec.rows};
    if (!spec.is_vector) shape.push_back(spec.transposed ? spec.rows : spec.columns);
    header[checkpoint::source_tensor_name(spec.name, checkpoint::NameStyle::kHuggingFace)] = {
        {"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::ofstream out(path, std::ios::binary);
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  out.write(reinterpret_cast<const char*>(&length), sizeof(length));
  out << text;
  for (const model::TensorSpec& spec : specs) noise.write(out, spec.num_elements());
  if (!out.flush()) throw std::runtime_error("cannot write " + path.string());
}

void write_model(const fs::path& folder, std::int64_t num_shards, std::int64_t num_layers) {
  const model::LlamaConfig config = llama_8b(num_layers);
  write_config(folder, config);
  const auto specs = model::tensor_specs(config);
  Noise noise;
  nlohmann::json weight_map;
  const auto begin_of = [&](std::int64_t shard) {
    return specs.begin() + std::ssize(specs) * shard / num_shards;
  };
  for (std::int64_t shard = 0; shard < num_shards; ++shard) {
    const std::vector<model::TensorSpec> part(begin_of(shard), begin_of(shard + 1));
    const std::string name = "model-" + std::to_string(shard + 1) + ".safetensors";
    write_shard(folder / name, part, noise);
    for (const auto& spec : part) {
      weight_map[checkpoint::source_tensor_name(spec.name, checkpoint::NameStyle::kHuggingFace)] =
          name;
    }
  }
  std::ofstream(folder / "model.safetensors.index.json")
      << nlohmann::json{{"weight_map", weight_map}}.dump();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 5) {
    std::cerr << "usage: make_synthetic_checkpoint FOLDER TOKENIZER_FOLDER [SHARDS [LAYERS]]\n";
    return 64;
  }
  try {
    const fs::path folder = argv[1];
    fs::create_directories(folder);
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
      fs::copy_file(fs::path(argv[2]) / name, folder / name, fs::copy_options::overwrite_existing);
    write_model(folder, argc > 3 ? std::stoll(argv[3]) : 4, argc > 4 ? std::stoll(argv[4]) : 32);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
