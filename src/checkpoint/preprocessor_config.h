#pragma once
// How a Hugging Face vision model wants its images prepared: preprocessor_config.json, in newer
// folders the object "image_processor" of processor_config.json.

#include <filesystem>
#include <vector>

#include "caravan/model/vision_config.h"

namespace caravan::checkpoint {

/// Compares the file of the first place that has one with what image/ and the encoder do; fields
/// that are not there are not compared.
/// @throws InputError naming file and field that differ.
void check_preprocessor(const std::vector<std::filesystem::path>& places,
                        const model::VisionConfig& vision);

}  // namespace caravan::checkpoint
