#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "caravan/core/error.h"
#include "caravan/core/partition.h"

namespace caravan {
namespace {

TEST(SplitEvenly, CoversEverythingWithSizesThatDifferByAtMostOne) {
  for (std::int64_t total = 0; total < 40; ++total) {
    for (std::int64_t parts = 1; parts < 12; ++parts) {
      std::int64_t expected_begin = 0;
      for (std::int64_t index = 0; index < parts; ++index) {
        const Range range = split_evenly(total, parts, index);
        EXPECT_EQ(range.begin, expected_begin);
        EXPECT_GE(range.size(), total / parts);
        EXPECT_LE(range.size(), total / parts + 1);
        expected_begin = range.end;
      }
      EXPECT_EQ(expected_begin, total);
    }
  }
}

TEST(SplitEvenly, RefusesAPartThatDoesNotExist) {
  EXPECT_THROW(split_evenly(4, 2, 2), InternalError);
  EXPECT_THROW(split_evenly(4, 0, 0), InternalError);
}

// The definition, by recursion: node [index * 2^level, ...) cut at the number of slices.
float sum_node(const std::vector<float>& slices, std::int64_t level, std::int64_t index) {
  const auto count = static_cast<std::int64_t>(slices.size());
  if (level == 0) return slices[static_cast<std::size_t>(index)];
  const float left = sum_node(slices, level - 1, 2 * index);
  if (((2 * index + 1) << (level - 1)) >= count) return left;
  return left + sum_node(slices, level - 1, 2 * index + 1);
}

float sum_root(const std::vector<float>& slices) {
  std::int64_t level = 0;
  while ((std::int64_t{1} << level) < static_cast<std::int64_t>(slices.size())) ++level;
  return sum_node(slices, level, 0);
}

std::vector<float> awkward_values(std::int64_t count) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(std::ldexp(1.0F + static_cast<float>(i * 37 % 101) / 97.0F,
                                static_cast<int>(i * 11 % 23) - 11) *
                     (i % 3 == 0 ? -1.0F : 1.0F));
  }
  return values;
}

TEST(SliceTree, GivesTheSameBitsForEveryCutIntoRanks) {
  for (std::int64_t num_slices = 1; num_slices <= 70; ++num_slices) {
    const SliceTree tree(num_slices);
    const std::vector<float> slices = awkward_values(num_slices);
    const float expected = sum_root(slices);
    for (std::int64_t ranks = 1; ranks <= 9; ++ranks) {
      std::vector<SliceTree::Node> nodes;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const auto own = tree.cover(split_evenly(num_slices, ranks, rank));
        nodes.insert(nodes.end(), own.begin(), own.end());
      }
      std::vector<float> values;
      for (const SliceTree::Node& node : nodes) {
        values.push_back(sum_node(slices, node.level, node.index));
      }
      for (const SliceTree::Addition& addition : tree.finish(nodes)) {
        values[static_cast<std::size_t>(addition.target)] +=
            values[static_cast<std::size_t>(addition.source)];
      }
      EXPECT_EQ(values[0], expected) << num_slices << " slices on " << ranks << " ranks";
    }
  }
}

TEST(SliceTree, CoversWithOneNodeWhenARankOwnsEverything) {
  for (const std::int64_t num_slices : {1, 2, 3, 9, 24, 64, 65}) {
    const auto nodes = SliceTree(num_slices).cover({0, num_slices});
    ASSERT_EQ(nodes.size(), 1U);
    EXPECT_EQ(nodes[0].slices, (Range{0, num_slices}));
  }
}

TEST(SliceTree, CoverIsExactAndSmallForEveryRange) {
  const std::int64_t num_slices = 45;
  const SliceTree tree(num_slices);
  for (std::int64_t begin = 0; begin <= num_slices; ++begin) {
    for (std::int64_t end = begin; end <= num_slices; ++end) {
      std::int64_t at = begin;
      const auto nodes = tree.cover({begin, end});
      for (const SliceTree::Node& node : nodes) {
        EXPECT_EQ(node.slices.begin, at);
        EXPECT_EQ(node.slices.begin, node.index << node.level);
        at = node.slices.end;
      }
      EXPECT_EQ(at, end);
      EXPECT_LE(nodes.size(), 12U);
    }
  }
}

TEST(SliceTree, RefusesNodesThatLeaveAGap) {
  const SliceTree tree(4);
  EXPECT_THROW(tree.finish({{0, 0, {0, 1}}, {0, 2, {2, 3}}}), InternalError);
  EXPECT_THROW(tree.finish({{0, 0, {0, 1}}}), InternalError);
  EXPECT_THROW(tree.cover({2, 5}), InternalError);
  EXPECT_THROW(SliceTree(0), InternalError);
}

}  // namespace
}  // namespace caravan
