#include "caravan/engine/block_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
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

using Then = BlockAllocator::WithoutOwner;

TEST(BlockAllocator, GivesCachedBlocksLastAndTheLongestCachedFirst) {
  BlockAllocator allocator(4);
  std::vector<std::int32_t> table;
  ASSERT_TRUE(allocator.allocate(3, table));
  allocator.release(2, Then::kCached);
  allocator.release(0, Then::kCached);
  EXPECT_EQ(allocator.num_cached(), 2);
  EXPECT_EQ(allocator.num_free(), 3) << "they count as free";
  EXPECT_EQ(allocator.num_used(), 1);
  std::vector<std::int32_t> next;
  ASSERT_TRUE(allocator.allocate(3, next));
  EXPECT_EQ(next, (std::vector<std::int32_t>{3, 2, 0}));
  EXPECT_EQ(allocator.num_cached(), 0);
}

TEST(BlockAllocator, ACachedBlockIsUsedAgainWhenItIsShared) {
  BlockAllocator allocator(2);
  std::vector<std::int32_t> table;
  ASSERT_TRUE(allocator.allocate(2, table));
  allocator.release(0, Then::kCached);
  allocator.release(1, Then::kCached);
  allocator.share(0);
  EXPECT_EQ(allocator.references(0), 1);
  EXPECT_EQ(allocator.num_used(), 1);
  std::vector<std::int32_t> next;
  EXPECT_FALSE(allocator.allocate(2, next));
  allocator.release(0, Then::kCached);
  ASSERT_TRUE(allocator.allocate(1, next));
  EXPECT_EQ(next, std::vector<std::int32_t>{1}) << "0 was used since";
}

// Against lists that are searched from end to end.
TEST(BlockAllocatorProperty, KeepsTheAccountsOfAPlainModel) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto below = [&](std::int64_t limit) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
    };
    const std::int64_t num_blocks = 1 + below(12);
    BlockAllocator allocator(num_blocks);
    std::vector<std::int32_t> owners(static_cast<std::size_t>(num_blocks), 0);
    std::vector<std::int32_t> free;   // the last one is next
    std::deque<std::int32_t> cached;  // the first one is next
    for (std::int64_t block = num_blocks; block > 0; --block) {
      free.push_back(static_cast<std::int32_t>(block - 1));
    }
    for (int step = 0; step < 300; ++step) {
      const auto block = static_cast<std::int32_t>(below(num_blocks));
      auto& count = owners[static_cast<std::size_t>(block)];
      switch (below(4)) {
        case 0: {
          std::vector<std::int32_t> expected;
          const std::int64_t wanted = below(4);
          const bool fits = wanted <= std::ssize(free) + std::ssize(cached);
          for (std::int64_t i = 0; fits && i < wanted; ++i) {
            if (free.empty()) {
              expected.push_back(cached.front());
              cached.pop_front();
            } else {
              expected.push_back(free.back());
              free.pop_back();
            }
            owners[static_cast<std::size_t>(expected.back())] = 1;
          }
          std::vector<std::int32_t> table;
          ASSERT_EQ(allocator.allocate(wanted, table), fits);
          ASSERT_EQ(table, expected);
          break;
        }
        case 1: {
          const auto found = std::find(cached.begin(), cached.end(), block);
          if (count == 0 && found == cached.end()) break;
          if (found != cached.end()) cached.erase(found);
          ++count;
          allocator.share(block);
          break;
        }
        default: {
          if (count == 0) break;
          const bool keep = below(2) == 0;
          allocator.release(block, keep ? Then::kCached : Then::kFree);
          if (--count > 0) break;
          if (keep) {
            cached.push_back(block);
          } else {
            free.push_back(block);
          }
        }
      }
      ASSERT_EQ(allocator.references(block), count);
      ASSERT_EQ(allocator.num_cached(), std::ssize(cached));
      ASSERT_EQ(allocator.num_free(), std::ssize(cached) + std::ssize(free));
    }
  }
}

TEST(BlockAllocator, RefusesMisuse) {
  BlockAllocator allocator(2);
  EXPECT_THROW(allocator.release(0), InternalError);
  EXPECT_THROW(allocator.share(1), InternalError) << "free, and what it holds is nothing to share";
  EXPECT_THROW(allocator.references(2), InternalError);
  EXPECT_THROW(BlockAllocator(-1), InternalError);
}

}  // namespace
}  // namespace caravan::engine
