#pragma once
// The vision part of a Hugging Face config.json (model_type "mllama").

#include "caravan/core/json_reader.h"
#include "caravan/model/config.h"

namespace caravan::checkpoint {

/// Sets config.vision, and takes the cross-attention layers, which text_config counts among the
/// layers, out of config.num_layers.
/// @param json  the whole file
/// @param text  its text_config, from which the rest of `config` was read
/// @throws InputError naming the field whose value is not supported.
void read_hf_vision_config(const JsonReader& json, const JsonReader& text,
                           model::LlamaConfig& config);

}  // namespace caravan::checkpoint
