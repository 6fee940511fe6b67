#include "tree_sum.h"

#include <algorithm>

#include "caravan/core/standard_floats.h"

namespace caravan::parallel {

void finish_tree_sum(const SlicedSum& sum, const float* partials, float* accumulator,
                     std::int64_t count, std::vector<float>& scratch) {
  const StandardFloats floats;
  if (sum.num_nodes() == 1) {
    for (std::int64_t i = 0; i < count; ++i) accumulator[i] += partials[i];
    return;
  }
  constexpr std::int64_t kTile = 512;  // elements summed at a time: all nodes of a tile stay in L1
  scratch.resize(static_cast<std::size_t>(sum.num_nodes() * kTile));
  for (std::int64_t first = 0; first < count; first += kTile) {
    const std::int64_t width = std::min(kTile, count - first);
    for (std::int64_t node = 0; node < sum.num_nodes(); ++node) {
      std::copy_n(partials + node * count + first, width, scratch.data() + node * kTile);
    }
    for (const SliceTree::Addition& addition : sum.additions()) {
      float* target = scratch.data() + addition.target * kTile;
      const float* source = scratch.data() + addition.source * kTile;
      for (std::int64_t i = 0; i < width; ++i) target[i] += source[i];
    }
    for (std::int64_t i = 0; i < width; ++i) {
      accumulator[first + i] += scratch[static_cast<std::size_t>(i)];
    }
  }
}

}  // namespace caravan::parallel
