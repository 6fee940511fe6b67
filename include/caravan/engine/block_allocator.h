#pragma once
// Who owns which block of the KV pool: reference counts, so that choices of one request can share
// the blocks of its prompt.
//
// Plain bookkeeping on the leader; the other ranks see block numbers in the step plan only. Leaves
// out: the memory itself (ops/kv_pool.h), whose turn it is (scheduler.h).

#include <cstdint>
#include <vector>

namespace caravan::engine {

class BlockAllocator {
 public:
  explicit BlockAllocator(std::int64_t num_blocks);

  std::int64_t num_blocks() const { return static_cast<std::int64_t>(references_.size()); }
  std::int64_t num_free() const { return static_cast<std::int64_t>(free_.size()); }
  std::int64_t num_used() const { return num_blocks() - num_free(); }

  /// Appends `count` free blocks, each with one reference, to `table`: all of them or none.
  /// The block released last is given out first, so that few pages of the pool are ever touched.
  [[nodiscard]] bool allocate(std::int64_t count, std::vector<std::int32_t>& table);

  /// One more owner of a used block.
  void share(std::int32_t block);
  /// One owner less; the block is free after the last one.
  void release(std::int32_t block);
  /// Owners of `block`; 0 when it is free.
  std::int32_t references(std::int32_t block) const;

 private:
  std::vector<std::int32_t> references_;
  std::vector<std::int32_t> free_;  // a stack
};

}  // namespace caravan::engine
