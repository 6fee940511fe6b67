#include "caravan/engine/prefix_index.h"

#include <gtest/gtest.h>

#include "caravan/core/error.h"

namespace caravan::engine {
namespace {

using Tokens = std::vector<std::int32_t>;
using Images = std::vector<std::string_view>;

TEST(PrefixIndex, FindsABlockByWhatItHoldsAndWhatIsBefore) {
  PrefixIndex index(8);
  const Tokens first{1, 2};
  const Tokens second{3, 4};
  const auto one = index.add(PrefixIndex::kNothing, {first, {}}, 5);
  const auto two = index.add(one, {second, {}}, 6);
  EXPECT_EQ(index.find(PrefixIndex::kNothing, {first, {}})->block, 5);
  EXPECT_EQ(index.find(PrefixIndex::kNothing, {first, {}})->prefix, one);
  EXPECT_EQ(index.find(one, {second, {}})->block, 6);
  EXPECT_FALSE(index.find(PrefixIndex::kNothing, {second, {}})) << "the same tokens, elsewhere";
  EXPECT_FALSE(index.find(two, {second, {}}));
  EXPECT_FALSE(index.find(one, {first, {}}));
}

TEST(PrefixIndex, TellsImagesApart) {
  PrefixIndex index(8);
  const Tokens tokens{9, 9};
  const std::vector<Images> contents = {{},         {"a"},  {"b"},     {"a", "b"},
                                        {"b", "a"}, {"ab"}, {"ab", ""}};
  for (std::size_t i = 0; i < contents.size(); ++i) {
    EXPECT_FALSE(index.find(PrefixIndex::kNothing, {tokens, contents[i]})) << i;
    index.add(PrefixIndex::kNothing, {tokens, contents[i]}, static_cast<std::int32_t>(i));
  }
  for (std::size_t i = 0; i < contents.size(); ++i) {
    EXPECT_EQ(index.find(PrefixIndex::kNothing, {tokens, contents[i]})->block,
              static_cast<std::int32_t>(i));
  }
}

TEST(PrefixIndex, KeepsTheFirstOfTwoBlocksWithTheSameContent) {
  PrefixIndex index(4);
  const Tokens tokens{1};
  const auto name = index.add(PrefixIndex::kNothing, {tokens, {}}, 0);
  EXPECT_EQ(index.add(PrefixIndex::kNothing, {tokens, {}}, 1), name);
  EXPECT_TRUE(index.contains(0));
  EXPECT_FALSE(index.contains(1));
  EXPECT_EQ(index.size(), 1);
}

TEST(PrefixIndex, ForgetsAndNeverGivesANameTwice) {
  PrefixIndex index(2);
  const Tokens tokens{1};
  const Tokens more{2};
  const auto old_name = index.add(PrefixIndex::kNothing, {tokens, {}}, 0);
  index.add(old_name, {more, {}}, 1);
  index.forget(0);
  index.forget(0);
  EXPECT_FALSE(index.contains(0));
  EXPECT_FALSE(index.find(PrefixIndex::kNothing, {tokens, {}}));
  const Tokens other{3};
  const auto new_name = index.add(PrefixIndex::kNothing, {other, {}}, 0);
  EXPECT_NE(new_name, old_name);
  EXPECT_FALSE(index.find(new_name, {more, {}})) << "1 holds what followed the old content of 0";
  EXPECT_EQ(index.size(), 2);
}

TEST(PrefixIndex, RefusesASecondContentOfABlock) {
  PrefixIndex index(1);
  const Tokens tokens{1};
  index.add(PrefixIndex::kNothing, {tokens, {}}, 0);
  EXPECT_THROW(index.add(PrefixIndex::kNothing, {tokens, {}}, 0), InternalError);
}

}  // namespace
}  // namespace caravan::engine
