#pragma once
// The vision part of Meta's params.json.

#include <cstdint>
#include <optional>

#include "caravan/core/json_reader.h"
#include "caravan/model/vision_config.h"

namespace caravan::checkpoint {

/// Empty for text models. Meta's code fixes the encoder: 32 local and 8 global layers, 16 heads,
/// patches of 14 pixels; its width shows in the weights and is that of the releases here.
/// @param num_layers  self-attention layers of the decoder
/// @param encoder     other sizes of the encoder, where the file has an object of them
/// @throws InputError naming the field that is missing or not supported.
std::optional<model::VisionConfig> read_meta_vision(const JsonReader& json, std::int64_t num_layers,
                                                    const std::optional<JsonReader>& encoder);

}  // namespace caravan::checkpoint
