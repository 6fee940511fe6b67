#pragma once
// Hash map from two ids to a third: merges, and edges of the token trie.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace caravan::text {

class PairMap {
 public:
  static constexpr std::int32_t kNone = -1;

  explicit PairMap(std::size_t expected_size = 0) : slots_(std::bit_ceil(2 * expected_size + 16)) {}

  /// Sets the value (>= 0) of (left, right), both >= 0, over an earlier one.
  void set(std::int32_t left, std::int32_t right, std::int32_t value) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[slot_of(key_of(left, right))];
    if (slot.value == kNone) ++size_;
    slot = {key_of(left, right), value};
  }

  /// Value of (left, right), or kNone.
  std::int32_t get(std::int32_t left, std::int32_t right) const {
    return slots_[slot_of(key_of(left, right))].value;
  }

 private:
  struct Slot {
    std::uint64_t key = 0;
    std::int32_t value = kNone;
  };

  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) |
           static_cast<std::uint32_t>(right);
  }
  /// Where `key` is, or the empty slot where it would go.
  std::size_t slot_of(std::uint64_t key) const {
    std::uint64_t hash = (key ^ (key >> 29)) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 32;
    const std::size_t mask = slots_.size() - 1;
    std::size_t index = hash & mask;
    while (slots_[index].value != kNone && slots_[index].key != key) index = (index + 1) & mask;
    return index;
  }
  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.value != kNone) slots_[slot_of(slot.key)] = slot;
    }
  }

  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  std::size_t size_ = 0;
};

}  // namespace caravan::text
