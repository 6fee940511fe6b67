#pragma once
// The weights of a small Hugging Face checkpoint with vision as the decoder wants them, mapped here
// by hand: independent of the importer, so that the two check each other.

#include <map>
#include <string>
#include <vector>

#include "caravan/model/config.h"
#include "caravan/model/weight_source.h"

namespace caravan::test {

/// Architecture of a folder's config.json (the fields that the small models use).
model::LlamaConfig read_hf_config(const std::string& folder);

/// All tensors of a safetensors file as float32, by name.
struct HfTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};
/// Tensors of integers are left out.
std::map<std::string, HfTensor> read_float_tensors(const std::string& path);
/// One tensor of bytes.
std::vector<std::uint8_t> read_byte_tensor(const std::string& path, const std::string& name);

class HfWeights final : public model::WeightSource {
 public:
  HfWeights(const std::string& folder, const model::LlamaConfig& config);
  DType dtype(const model::TensorSpec&) const override { return DType::kFloat32; }
  void read_rows(const model::TensorSpec& spec, Range rows, void* destination) override;

 private:
  const HfTensor& find(const std::string& part, const std::string& name) const;
  HfTensor mapped(const model::TensorSpec& spec) const;
  HfTensor text_layer(const std::string& part, std::int64_t combined_index, bool cross) const;
  HfTensor vision_tensor(const std::string& name) const;
  HfTensor tile_table(const std::string& name, std::int64_t tokens) const;

  model::LlamaConfig config_;
  std::map<std::string, HfTensor> tensors_;
};

}  // namespace caravan::test
