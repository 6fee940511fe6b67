#pragma once
// Finishing a sliced sum on one rank, once the partial sums of all ranks are at hand. Shared by all
// CPU communicators, so that every number of ranks runs the same additions.

#include <cstdint>

#include "caravan/parallel/communicator.h"

namespace caravan::parallel {

/// accumulator[i] += tree sum over nodes of partials[node * count + i], for i in [0, count).
/// Destroys partials.
inline void finish_tree_sum(const SlicedSum& sum, float* partials, float* accumulator,
                            std::int64_t count) {
  for (const SliceTree::Addition& addition : sum.additions()) {
    float* target = partials + addition.target * count;
    const float* source = partials + addition.source * count;
    for (std::int64_t i = 0; i < count; ++i) target[i] += source[i];
  }
  for (std::int64_t i = 0; i < count; ++i) accumulator[i] += partials[i];
}

}  // namespace caravan::parallel
