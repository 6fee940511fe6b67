#pragma once
// The stored requests of tests/data/vision with what the reference answers.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "caravan/model/vision_config.h"
#include "hf_weights.h"
#include "support/image_rig.h"

namespace caravan::test {

struct Picture {
  model::TileGrid grid;
  std::vector<std::uint8_t> pixels;
};

struct Expected {
  std::string id;
  std::vector<std::int32_t> prompt;
  std::vector<Picture> pictures;
  std::vector<ImageRig::Interval> intervals;  // images: those of the request
  std::vector<std::int32_t> greedy;
  std::vector<float> gaps;  // of the two best logits, per token
  std::map<std::string, HfTensor> tensors;

  /// Greedy tokens before the first whose two best logits are so close that either may win.
  std::size_t comparable_tokens() const;
};

/// All requests of a model ("tiny-a"), in order of their ids.
std::vector<Expected> read_requests(const std::string& model);

/// Folder of the model's checkpoint.
std::string checkpoint_folder(const std::string& model);

}  // namespace caravan::test
