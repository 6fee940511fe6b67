#pragma once
// Finds blocks of the KV pool by what they hold: the keys and values of a full block depend on its
// tokens, on the images that stand among them, and on everything before.
//
// Contents are compared as a whole, not by a digest, so that no two can be mistaken for each other.
// At most one entry for each block of the pool. Leaves out: who owns a block and how long it stays
// (block_allocator.h).

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace caravan::engine {

/// What stands at the positions of one full block.
struct BlockContent {
  std::span<const std::int32_t> tokens;
  std::span<const std::string_view> images;  // content hashes for its image tokens, in order
};

class PrefixIndex {
 public:
  /// Names the contents of a text's first blocks. No name is given twice, also not to the same
  /// contents after they were forgotten.
  using Prefix = std::uint64_t;
  static constexpr Prefix kNothing = 0;

  struct Entry {
    Prefix prefix = kNothing;  // the block's content included
    std::int32_t block = 0;
  };

  explicit PrefixIndex(std::int64_t num_blocks);

  /// The block that holds `content` behind `before`.
  std::optional<Entry> find(Prefix before, const BlockContent& content);
  /// Notes what `block` holds. Where another block holds the same, that one stays the one found.
  /// Returns the name of both together. @pre !contains(block)
  Prefix add(Prefix before, const BlockContent& content, std::int32_t block);

  /// Whether `block` can be found.
  bool contains(std::int32_t block) const { return keys_.at(index(block)) != nullptr; }
  /// The content of `block` is lost. Nothing happens if it cannot be found.
  void forget(std::int32_t block);

  std::int64_t size() const { return std::ssize(entries_); }

 private:
  static std::size_t index(std::int32_t block) { return static_cast<std::size_t>(block); }
  const std::string& make_key(Prefix before, const BlockContent& content);

  std::unordered_map<std::string, Entry> entries_;  // by (before, content) as bytes
  std::vector<const std::string*> keys_;            // of each block; owned by entries_
  std::string key_;                                 // scratch
  Prefix last_prefix_ = kNothing;
};

}  // namespace caravan::engine
