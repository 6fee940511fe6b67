#include "caravan/engine/block_allocator.h"

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"

namespace caravan::engine {

BlockAllocator::BlockAllocator(std::int64_t num_blocks) {
  CARAVAN_ASSERT(num_blocks >= 0, "a KV pool cannot have {} blocks", num_blocks);
  references_.assign(checked_cast<std::size_t>(num_blocks), 0);
  free_.reserve(references_.size());
  for (auto block = checked_cast<std::int32_t>(num_blocks); block > 0; --block) {
    free_.push_back(block - 1);
  }
}

bool BlockAllocator::allocate(std::int64_t count, std::vector<std::int32_t>& table) {
  if (count > num_free()) return false;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t block = free_.back();
    free_.pop_back();
    references_[static_cast<std::size_t>(block)] = 1;
    table.push_back(block);
  }
  return true;
}

void BlockAllocator::share(std::int32_t block) {
  CARAVAN_ASSERT(references(block) > 0, "block {} is shared but nobody owns it", block);
  ++references_[static_cast<std::size_t>(block)];
}

void BlockAllocator::release(std::int32_t block) {
  CARAVAN_ASSERT(references(block) > 0, "block {} is released but nobody owns it", block);
  if (--references_[static_cast<std::size_t>(block)] == 0) free_.push_back(block);
}

std::int32_t BlockAllocator::references(std::int32_t block) const {
  CARAVAN_ASSERT(block >= 0 && block < num_blocks(), "block {} is outside the pool of {}", block,
                 num_blocks());
  return references_[static_cast<std::size_t>(block)];
}

}  // namespace caravan::engine
