#include "caravan/engine/block_allocator.h"

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"

namespace caravan::engine {

BlockAllocator::BlockAllocator(std::int64_t num_blocks) {
  CARAVAN_ASSERT(num_blocks >= 0, "a KV pool cannot have {} blocks", num_blocks);
  references_.assign(checked_cast<std::size_t>(num_blocks), 0);
  free_.reserve(references_.size());
  head_ = checked_cast<std::int32_t>(num_blocks);
  for (std::int32_t block = head_; block > 0; --block) free_.push_back(block - 1);
  links_.assign(references_.size() + 1, {kUnlinked, kUnlinked});
  links(head_) = {head_, head_};
}

bool BlockAllocator::allocate(std::int64_t count, std::vector<std::int32_t>& table) {
  if (count > num_free()) return false;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int32_t block = 0;
    if (free_.empty()) {
      block = links(head_).newer;  // the ring is closed: behind the newest comes the oldest
      remove_cached(block);
    } else {
      block = free_.back();
      free_.pop_back();
    }
    references_[static_cast<std::size_t>(block)] = 1;
    table.push_back(block);
  }
  return true;
}

void BlockAllocator::share(std::int32_t block) {
  if (references(block) == 0) {
    CARAVAN_ASSERT(cached(block), "block {} is shared but nobody owns it", block);
    remove_cached(block);
  }
  ++references_[static_cast<std::size_t>(block)];
}

void BlockAllocator::release(std::int32_t block, WithoutOwner then) {
  CARAVAN_ASSERT(references(block) > 0, "block {} is released but nobody owns it", block);
  if (--references_[static_cast<std::size_t>(block)] > 0) return;
  switch (then) {
    case WithoutOwner::kFree: free_.push_back(block); break;
    case WithoutOwner::kCached: append_cached(block); break;
  }
}

std::int32_t BlockAllocator::references(std::int32_t block) const {
  CARAVAN_ASSERT(block >= 0 && block < num_blocks(), "block {} is outside the pool of {}", block,
                 num_blocks());
  return references_[static_cast<std::size_t>(block)];
}

void BlockAllocator::append_cached(std::int32_t block) {
  const std::int32_t newest = links(head_).older;
  links(block) = {newest, head_};
  links(newest).newer = block;
  links(head_).older = block;
  ++num_cached_;
}

void BlockAllocator::remove_cached(std::int32_t block) {
  const Links neighbours = links(block);
  links(neighbours.older).newer = neighbours.newer;
  links(neighbours.newer).older = neighbours.older;
  links(block) = {kUnlinked, kUnlinked};
  --num_cached_;
}

}  // namespace caravan::engine
