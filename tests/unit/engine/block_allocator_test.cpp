#include "caravan/engine/block_allocator.h"

#include <gtest/gtest.h>

#include <set>

#include "caravan/core/error.h"

namespace caravan::engine {
namespace {

TEST(BlockAllocator, GivesAllBlocksOnceAndThenNone) {
  BlockAllocator allocator(5);
  std::vector<std::int32_t> table;
  ASSERT_TRUE(allocator.allocate(3, table));
  ASSERT_TRUE(allocator.allocate(2, table));
  EXPECT_EQ(std::set<std::int32_t>(table.begin(), table.end()),
            (std::set<std::int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(allocator.num_free(), 0);
  EXPECT_FALSE(allocator.allocate(1, table));
  EXPECT_TRUE(allocator.allocate(0, table));
}

TEST(BlockAllocator, GivesNothingWhenNotAllFit) {
  BlockAllocator allocator(4);
  std::vector<std::int32_t> table;
  ASSERT_TRUE(allocator.allocate(2, table));
  EXPECT_FALSE(allocator.allocate(3, table));
  EXPECT_EQ(table.size(), 2U);
  EXPECT_EQ(allocator.num_used(), 2);
}

TEST(BlockAllocator, FreesASharedBlockWithItsLastOwner) {
  BlockAllocator allocator(1);
  std::vector<std::int32_t> table;
  ASSERT_TRUE(allocator.allocate(1, table));
  allocator.share(table[0]);
  EXPECT_EQ(allocator.references(table[0]), 2);
  allocator.release(table[0]);
  EXPECT_EQ(allocator.num_free(), 0);
  allocator.release(table[0]);
  EXPECT_EQ(allocator.num_free(), 1);
  EXPECT_EQ(allocator.references(table[0]), 0);
}

TEST(BlockAllocator, GivesTheBlockReleasedLastFirst) {
  BlockAllocator allocator(8);
  std::vector<std::int32_t> table;
  ASSERT_TRUE(allocator.allocate(3, table));
  EXPECT_EQ(table, (std::vector<std::int32_t>{0, 1, 2}));
  allocator.release(1);
  std::vector<std::int32_t> next;
  ASSERT_TRUE(allocator.allocate(2, next));
  EXPECT_EQ(next, (std::vector<std::int32_t>{1, 3}));
}

TEST(BlockAllocator, RefusesMisuse) {
  BlockAllocator allocator(2);
  EXPECT_THROW(allocator.release(0), InternalError);
  EXPECT_THROW(allocator.share(1), InternalError);
  EXPECT_THROW(allocator.references(2), InternalError);
  EXPECT_THROW(BlockAllocator(-1), InternalError);
}

}  // namespace
}  // namespace caravan::engine
