#pragma once
// Who owns which block of the KV pool: reference counts, so that sequences can share blocks. A
// block whose content may be wanted again is cached when its last owner goes: it counts as free,
// but is given out only when no other is left.
//
// Plain bookkeeping on the leader; the other ranks see block numbers in the step plan only. Leaves
// out: the memory itself (ops/kv_pool.h), what blocks hold (prefix_index.h), whose turn it is
// (scheduler.h).

#include <cstdint>
#include <vector>

namespace caravan::engine {

class BlockAllocator {
 public:
  enum class WithoutOwner { kFree, kCached };

  explicit BlockAllocator(std::int64_t num_blocks);

  std::int64_t num_blocks() const { return static_cast<std::int64_t>(references_.size()); }
  /// Blocks without owner, cached ones included.
  std::int64_t num_free() const { return static_cast<std::int64_t>(free_.size()) + num_cached_; }
  std::int64_t num_used() const { return num_blocks() - num_free(); }
  std::int64_t num_cached() const { return num_cached_; }

  /// Appends `count` free blocks, each with one reference, to `table`: all of them or none.
  /// The block released last is given out first, so that few pages of the pool are ever touched;
  /// then cached ones, the one cached for longest first.
  [[nodiscard]] bool allocate(std::int64_t count, std::vector<std::int32_t>& table);

  /// One more owner of a used or cached block.
  void share(std::int32_t block);
  /// One owner less; after the last one the block becomes what `then` says.
  void release(std::int32_t block, WithoutOwner then = WithoutOwner::kFree);
  /// Owners of `block`; 0 when it is free or cached.
  std::int32_t references(std::int32_t block) const;

 private:
  // Neighbours in the ring of cached blocks, whose head follows the last block; kUnlinked outside.
  struct Links {
    std::int32_t older = 0;
    std::int32_t newer = 0;
  };
  static constexpr std::int32_t kUnlinked = -1;

  Links& links(std::int32_t block) { return links_[static_cast<std::size_t>(block)]; }
  bool cached(std::int32_t block) { return links(block).newer != kUnlinked; }
  void append_cached(std::int32_t block);
  void remove_cached(std::int32_t block);

  std::vector<std::int32_t> references_;
  std::vector<std::int32_t> free_;  // a stack
  std::vector<Links> links_;
  std::int32_t head_ = 0;
  std::int64_t num_cached_ = 0;
};

}  // namespace caravan::engine
