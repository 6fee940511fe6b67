#pragma once
// The parts around the model of a tokenizer.json of Llama 2's kind, where spaces become U+2581: in
// the older files by a normalizer, in the newer ones by a Metaspace pre-tokenizer.

#include <string>
#include <vector>

#include "caravan/text/tokenizer_spec.h"
#include "json_fields.h"

namespace caravan::text {

/// Whether the parts of a tokenizer.json (null where absent) are of this kind.
bool is_space_pipeline(const JsonReader& model, const Json* normalizer, const Json* pre_tokenizer);

struct SpacePipeline {
  SpacePrefix prefix = SpacePrefix::kNone;
  bool by_normalizer = false;  // added tokens with "normalized" are matched behind it
  std::vector<std::string> split_patterns;
};
/// @throws InputError naming the part that is not supported.
SpacePipeline read_space_pipeline(const Json* normalizer, const Json* pre_tokenizer);

/// Refuses decoders that do more than undo the pipeline.
void check_space_decoder(const Json* decoder);

}  // namespace caravan::text
