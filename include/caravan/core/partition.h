#pragma once
// Arithmetic of cutting index ranges, and the fixed binary tree in which slices of a sum are added.
//
// Nothing in the program divides by a rank or thread count except here and in model/shard_plan.
// Leaves out: what is cut (shard_plan) and moving partial sums between ranks (parallel/).

#include <cstdint>
#include <vector>

namespace caravan {

/// Half-open range of indices.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
  bool contains(std::int64_t index) const { return index >= begin && index < end; }
  bool operator==(const Range&) const = default;
};

/// Part `index` of `total` items cut into `parts` contiguous ranges whose sizes differ by at most
/// one (the first `total % parts` ranges are the larger ones; empty ranges when parts > total).
Range split_evenly(std::int64_t total, std::int64_t parts, std::int64_t index);

/// Ceiling of a / b for a >= 0, b > 0.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Smallest multiple of `multiple` that is >= value.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return ceil_div(value, multiple) * multiple;
}

/// The fixed binary tree over `num_slices` slices. Level 0 nodes are the slices; node i of level l
/// covers slices [i*2^l, (i+1)*2^l) cut at num_slices; its value is left + right, or the left child
/// alone where the right one is empty. The shape depends on num_slices alone, so any cut of the
/// slices over ranks gives the same bits, provided that each rank adds up whole nodes only.
class SliceTree {
 public:
  struct Node {
    std::int64_t level = 0;
    std::int64_t index = 0;
    Range slices;
    bool operator==(const Node&) const = default;
  };

  explicit SliceTree(std::int64_t num_slices);

  std::int64_t num_slices() const { return num_slices_; }

  /// The fewest whole nodes that together cover `owned`, in increasing order. One node when `owned`
  /// is everything, none when it is empty; at most 2*log2(num_slices).
  std::vector<Node> cover(Range owned) const;

  /// One step of finishing the tree: values[target] += values[source].
  struct Addition {
    std::int64_t target = 0;
    std::int64_t source = 0;
    bool operator==(const Addition&) const = default;
  };

  /// How to add up `nodes` (the covers of all ranks, concatenated in rank order: disjoint,
  /// increasing, covering every slice) to the root in tree order. Indices refer to positions in
  /// `nodes`; the result ends in values[0].
  std::vector<Addition> finish(const std::vector<Node>& nodes) const;

 private:
  std::int64_t num_slices_;
};

}  // namespace caravan
