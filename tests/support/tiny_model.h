#pragma once
// Small random models in memory, so that layers and engines can be tested without a file.

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "caravan/core/error.h"
#include "caravan/model/config.h"
#include "caravan/model/weight_source.h"
#include "small_random.h"

namespace caravan::test {

/// Head counts and widths that divide nothing: 9 query and 3 KV heads, F = 200 (last band short), V
/// = 331.
inline model::LlamaConfig uneven_config() {
  model::LlamaConfig config;
  config.vocab_size = 331;
  config.hidden_size = 72;
  config.ffn_size = 200;
  config.num_layers = 3;
  config.num_heads = 9;
  config.num_kv_heads = 3;
  config.head_dim = 8;
  config.max_positions = 4096;
  config.tied_embeddings = true;
  return config;
}

/// A model with vision whose sizes divide nothing: 5 encoder heads of 12, encoder ffn 100, 3 + 2
/// encoder layers.
inline model::LlamaConfig uneven_vision_config() {
  model::LlamaConfig config = uneven_config();
  config.tied_embeddings = false;
  model::VisionConfig vision;
  vision.tile_size = 28;
  vision.patch_size = 7;
  vision.width = 60;
  vision.num_heads = 5;
  vision.ffn_size = 100;
  vision.num_local_layers = 3;
  vision.num_global_layers = 2;
  vision.saved_layers = {1, 2};
  vision.cross_layers = {0, 2};
  vision.image_token_id = config.vocab_size;
  config.vision = vision;
  return config;
}

/// Random weights of a configuration, the same for the same seed on every rank.
class RandomWeightSource final : public model::WeightSource {
 public:
  RandomWeightSource(const model::LlamaConfig& config, std::uint64_t seed,
                     DType dtype = DType::kFloat32)
      : dtype_(dtype) {
    for (const model::TensorSpec& spec : model::tensor_specs(config)) {
      SmallRandom random(seed + std::hash<std::string>{}(spec.name));
      std::vector<float> values(static_cast<std::size_t>(spec.num_elements()));
      const bool is_gate = spec.name.find("gate") != std::string::npos;
      const float scale =
          spec.is_vector ? (is_gate ? 1.0F : 0.1F)
                         : 1.5F / static_cast<float>(std::max<std::int64_t>(8, spec.columns / 8));
      const bool is_norm = spec.is_vector && spec.name.find("norm") != std::string::npos;
      for (float& value : values) value = (is_norm ? 1.0F : 0.0F) + scale * random.symmetric();
      tensors_[spec.name] = std::move(values);
    }
  }

  DType dtype(const model::TensorSpec& spec) const override {
    return spec.is_vector ? DType::kFloat32 : dtype_;
  }

  void read_rows(const model::TensorSpec& spec, Range rows, void* destination) override {
    const std::vector<float>& values = tensors_.at(spec.name);
    CARAVAN_ASSERT(rows.begin % spec.band_rows == 0 &&
                       (rows.end % spec.band_rows == 0 || rows.end == spec.rows),
                   "{}: rows [{}, {}) are not whole bands of {}", spec.name, rows.begin, rows.end,
                   spec.band_rows);
    const DType type = dtype(spec);
    rows_read_ += rows.size();
    for (std::int64_t i = 0; i < rows.size() * spec.columns; ++i) {
      const float value = values[static_cast<std::size_t>(rows.begin * spec.columns + i)];
      if (type == DType::kFloat32) {
        std::memcpy(static_cast<char*>(destination) + 4 * i, &value, 4);
      } else {
        const std::uint16_t bits =
            type == DType::kBFloat16 ? float_to_bf16(value) : float_to_fp16(value);
        std::memcpy(static_cast<char*>(destination) + 2 * i, &bits, 2);
      }
    }
  }

  /// Element of the stored tensor, after rounding to its type.
  float value(const model::TensorSpec& spec, std::int64_t row, std::int64_t column) const {
    const float raw = tensors_.at(spec.name)[static_cast<std::size_t>(row * spec.columns + column)];
    switch (dtype(spec)) {
      case DType::kFloat32: return raw;
      case DType::kBFloat16: return bf16_to_float(float_to_bf16(raw));
      case DType::kFloat16: return fp16_to_float(float_to_fp16(raw));
      case DType::kInt8:
      case DType::kInt4: break;  // made of values of another type
    }
    return raw;
  }
  std::int64_t rows_read() const { return rows_read_; }

 private:
  DType dtype_;
  std::map<std::string, std::vector<float>> tensors_;
  std::int64_t rows_read_ = 0;
};

}  // namespace caravan::test
