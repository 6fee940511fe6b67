#include "caravan/core/partition.h"

#include <algorithm>

#include "caravan/core/error.h"

namespace caravan {

Range split_evenly(std::int64_t total, std::int64_t parts, std::int64_t index) {
  CARAVAN_ASSERT(total >= 0 && parts > 0 && index >= 0 && index < parts,
                 "cannot cut {} items into part {} of {}", total, index, parts);
  const std::int64_t base = total / parts;
  const std::int64_t larger = total % parts;
  const std::int64_t begin = index * base + std::min(index, larger);
  return {begin, begin + base + (index < larger ? 1 : 0)};
}

SliceTree::SliceTree(std::int64_t num_slices) : num_slices_(num_slices) {
  CARAVAN_ASSERT(num_slices >= 1, "a slice tree needs at least one slice, got {}", num_slices);
}

std::vector<SliceTree::Node> SliceTree::cover(Range owned) const {
  CARAVAN_ASSERT(owned.begin >= 0 && owned.begin <= owned.end && owned.end <= num_slices_,
                 "slices [{}, {}) of {}", owned.begin, owned.end, num_slices_);
  std::vector<Node> nodes;
  std::int64_t begin = owned.begin;
  while (begin < owned.end) {
    // The largest aligned node that starts at `begin` and ends, cut at num_slices, inside `owned`.
    std::int64_t level = 0;
    while (true) {
      const std::int64_t width = std::int64_t{1} << (level + 1);
      if (begin % width != 0) break;
      if (std::min(begin + width, num_slices_) > owned.end) break;
      if ((width >> 1) >= num_slices_) break;  // already the root
      ++level;
    }
    const std::int64_t width = std::int64_t{1} << level;
    const std::int64_t end = std::min(begin + width, num_slices_);
    nodes.push_back({level, begin / width, {begin, end}});
    begin = end;
  }
  return nodes;
}

std::vector<SliceTree::Addition> SliceTree::finish(const std::vector<Node>& nodes) const {
  struct Partial {
    Node node;
    std::int64_t position;
  };
  std::vector<Addition> additions;
  std::vector<Partial> stack;
  std::int64_t covered = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    CARAVAN_ASSERT(nodes[i].slices.begin == covered, "node {} starts at slice {}, expected {}", i,
                   nodes[i].slices.begin, covered);
    covered = nodes[i].slices.end;
    Partial top{nodes[i], static_cast<std::int64_t>(i)};
    while (true) {
      // Lift a left child whose right sibling lies beyond the last slice: the parent has the same
      // value.
      while (top.node.index % 2 == 0 && top.node.slices.end == num_slices_ &&
             top.node.slices.begin != 0) {
        top.node.level += 1;
        top.node.index /= 2;
      }
      if (stack.empty() || top.node.index % 2 == 0 || stack.back().node.level != top.node.level)
        break;
      const Partial left = stack.back();
      stack.pop_back();
      CARAVAN_ASSERT(left.node.index + 1 == top.node.index, "siblings {} and {}", left.node.index,
                     top.node.index);
      additions.push_back({left.position, top.position});
      top = {
          {left.node.level + 1, left.node.index / 2, {left.node.slices.begin, top.node.slices.end}},
          left.position};
    }
    stack.push_back(top);
  }
  CARAVAN_ASSERT(covered == num_slices_ && stack.size() == 1,
                 "{} of {} slices covered, {} partial sums left", covered, num_slices_,
                 stack.size());
  return additions;
}

}  // namespace caravan
