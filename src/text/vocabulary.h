#pragma once
// The ordinary tokens of a tokenizer by id and by bytes. Control tokens are not in it, so nothing
// that looks text up here can ever produce one; byte tokens have bytes, but are not found by them.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "caravan/text/tokenizer_spec.h"

namespace caravan::text {

constexpr std::int32_t kNoToken = -1;

class Vocabulary {
 public:
  /// Accepts a faulty `spec` (ids out of range are left out). `spec` outlives this object.
  explicit Vocabulary(const TokenizerSpec& spec);

  std::int32_t size() const { return static_cast<std::int32_t>(tokens_->size()); }
  /// Empty for control tokens and for ids that are unused or out of range.
  std::string_view bytes(std::int32_t id) const;
  /// Id of the token with these bytes, or kNoToken.
  std::int32_t find(std::string_view bytes) const;
  bool is_special(std::int32_t id) const;
  /// Length of the longest ordinary token.
  std::size_t max_bytes() const { return max_bytes_; }

  /// Ordinary tokens with the same bytes: (first, later) ids.
  const std::vector<std::pair<std::int32_t, std::int32_t>>& duplicates() const {
    return duplicates_;
  }

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::int32_t id = kNoToken;
  };
  enum class Kind : unsigned char { kOrdinary, kAdded, kByte, kSpecial };

  /// The slot that holds `bytes`, or the empty one where it would go.
  std::size_t slot_of(std::string_view bytes, std::uint32_t hash) const;
  void insert(std::int32_t id);

  const std::vector<std::string>* tokens_;
  std::vector<Kind> kinds_;
  std::vector<Slot> slots_;  // open addressing, a power of two
  std::vector<std::pair<std::int32_t, std::int32_t>> duplicates_;
  std::size_t max_bytes_ = 0;
};

}  // namespace caravan::text
