#pragma once
// Finds added tokens in text: leftmost, and the longest of those that start at one place.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "caravan/text/tokenizer_spec.h"
#include "pair_map.h"

namespace caravan::text {

class AddedTokenMatcher {
 public:
  enum class Which {
    kOrdinary,
    kOrdinaryAndSpecial,
    kNormalized,  // those that are matched behind the space prefix; they are in no other set
  };

  AddedTokenMatcher(const std::vector<AddedToken>& added_tokens, Which which);

  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::int32_t id = 0;
  };
  std::optional<Match> find(std::string_view text, std::size_t offset) const;

 private:
  std::array<bool, 256> starts_{};  // bytes that some token begins with
  bool empty_ = true;
  PairMap edges_;                       // trie: (node, byte) -> node
  std::vector<std::int32_t> node_ids_;  // node -> token that ends there, or -1
};

}  // namespace caravan::text
