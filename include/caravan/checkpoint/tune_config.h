#pragma once
// torchtune's own description of a Llama 3.2 Vision model: the arguments of its builders
// llama3_2_vision_encoder and llama3_2_vision_decoder, as builder_args.json with the objects
// "encoder" and "decoder". Text models come with the config.json or params.json of their base.

#include <string>

#include "caravan/model/config.h"

namespace caravan::checkpoint {

/// What the builders fix is set here: rotary scaling by 8, norm epsilon 1e-5 (the released models';
/// torchtune's own default for the norms of cross-attention is another one).
/// @throws InputError with `where` for malformed JSON, missing arguments, and values that are not
/// supported or make no sense.
model::LlamaConfig parse_builder_args(const std::string& text, const std::string& where);

}  // namespace caravan::checkpoint
