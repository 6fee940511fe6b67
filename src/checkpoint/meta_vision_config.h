#pragma once
// The vision part of Meta's params.json.

#include <cstdint>
#include <optional>

#include "caravan/core/json_reader.h"
#include "caravan/model/vision_config.h"

namespace caravan::checkpoint {

/// Empty for text models. Meta's code fixes the encoder: 32 local and 8 global layers, 16 heads,
/// patches of 14 pixels; its width shows in the weights and is that of the releases here. A file
/// with "x_tiny_vision" (small models for tests) has these sizes there.
/// @param num_layers  self-attention layers of the decoder
/// @throws InputError naming the field that is missing or not supported.
std::optional<model::VisionConfig> read_meta_vision(const JsonReader& json,
                                                    std::int64_t num_layers);

}  // namespace caravan::checkpoint
