#pragma once
// Finishing a sliced sum on one rank, once the partial sums of all ranks are at hand. Shared by all
// CPU communicators, so that every number of ranks runs the same additions.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "caravan/parallel/communicator.h"

namespace caravan::parallel {

/// accumulator[i] += tree sum over nodes of partials[node * count + i], for i in [0, count). Leaves
/// `partials` as they are (other ranks may be reading them); `scratch` is reused between calls.
void finish_tree_sum(const SlicedSum& sum, const float* partials, float* accumulator,
                     std::int64_t count, std::vector<float>& scratch);

/// Elements `tile` of each of `num_nodes` partial sums of `count` elements, one node after another.
inline void copy_tile(const float* partials, std::int64_t num_nodes, std::int64_t count, Range tile,
                      float* target) {
  for (std::int64_t node = 0; node < num_nodes; ++node) {
    std::copy_n(partials + node * count + tile.begin, tile.size(), target + node * tile.size());
  }
}

/// Elements of an exchange that goes in tiles, so that memory and message sizes do not grow with
/// the step: all nodes of a tile together stay within `limit` floats. Sums are per element, so the
/// cut changes no bit.
inline std::int64_t tile_elements(const SlicedSum& sum, std::int64_t limit) {
  return std::max<std::int64_t>(1, limit / sum.num_nodes());
}

}  // namespace caravan::parallel
