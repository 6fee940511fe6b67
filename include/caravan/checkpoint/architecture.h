#pragma once
// A model known by its architecture alone: Hugging Face's config.json or Meta's params.json without
// weights and tokenizer, for planning before anything is downloaded.

#include <cstdint>
#include <string>

#include "caravan/core/dtype.h"
#include "caravan/model/config.h"

namespace caravan::checkpoint {

struct Architecture {
  std::string name;  // of the file, or of its folder where the file has a usual name
  std::string path;  // of the file
  model::LlamaConfig config;
  DType dtype = DType::kBFloat16;  // that the file gives for the weights; bf16 where it gives none
};

/// Whether `path` is meant as one: a .json file, or a folder that has config.json or params.json.
bool is_architecture(const std::string& path);

/// Which of the two it is shows in its fields. A params.json without vocabulary is of Llama 2.
/// @throws MissingInputError; InputError for what parse_hf_config and parse_meta_params refuse, and
/// for JSON that is neither.
Architecture read_architecture(const std::string& path);

/// The sizes of a vision part in words.
struct VisionText {
  std::string cross_attention;
  std::string images;
  std::string encoder;
};
VisionText vision_text(const model::VisionConfig& vision);

/// Elements of all tensors.
std::int64_t num_parameters(const model::LlamaConfig& config);

}  // namespace caravan::checkpoint
