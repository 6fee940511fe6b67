#pragma once
// Hugging Face's config.json and generation_config.json of a Llama model.

#include <cstdint>
#include <string>
#include <vector>

#include "caravan/checkpoint/model_file.h"
#include "caravan/model/config.h"

namespace caravan::checkpoint {

struct HfConfig {
  model::LlamaConfig config;
  std::vector<std::int32_t> stop_ids;  // eos_token_id, a number or a list
};

/// Both dialects: rope_scaling and rope_theta on their own, or inside rope_parameters; "type" or
/// "rope_type"; null as absent. Vision models (mllama) have their decoder in text_config; its
/// layers are counted without the cross-attention layers here.
/// @throws InputError with `where` for malformed JSON, another architecture (named), a
/// quantized checkpoint, and whatever would change the numbers and is not supported.
HfConfig parse_hf_config(const std::string& text, const std::string& where);

/// Sampling defaults and stop ids.
/// @throws InputError for malformed JSON or values that make no sense.
GenerationDefaults parse_generation_config(const std::string& text, const std::string& where);

}  // namespace caravan::checkpoint
