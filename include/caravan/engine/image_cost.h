#pragma once
// What encoding an image costs, so that a step's share of it can be bounded as its text rows are.

#include <array>
#include <cstdint>
#include <vector>

#include "caravan/model/config.h"

namespace caravan::engine {

struct ImageCost {
  std::int64_t tokens = 0;  // image tokens, that text sees
  /// Of each unit of the encoder's work: as many rows of text cost as much.
  std::vector<double> unit_rows;
};

/// Costs of images of 1, 2, 3 and 4 tiles; all empty for models without vision.
/// Estimated from multiplications; decides when work is done and never what comes out.
std::array<ImageCost, model::kMaxTiles> image_costs(const model::LlamaConfig& config);

}  // namespace caravan::engine
