#pragma once
// Finds added tokens in text, as Hugging Face's library does: leftmost, and the longest of those
// that start at one place; then single words are sorted out and white space is taken along.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "caravan/text/tokenizer_spec.h"
#include "pair_map.h"
#include "white_space.h"

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
    std::size_t begin = 0;  // with the white space that it takes along
    std::size_t end = 0;
    std::int32_t id = 0;
    std::size_t search_from = 0;  // where the next search begins: right behind the token's text
  };
  /// The first match at or behind `offset`; it takes no white space before `taken` along.
  std::optional<Match> find(std::string_view text, std::size_t offset, std::size_t taken) const;

 private:
  struct Found {
    std::size_t end = 0;
    std::int32_t token = -1;
  };
  Found longest_at(std::string_view text, std::size_t begin) const;
  std::optional<Match> placed(std::string_view text, std::size_t begin, const Found& found,
                              std::size_t taken) const;

  Which which_;
  std::vector<AddedToken> tokens_;
  std::optional<WordCharacters> words_;  // where some token is matched as a whole word
  std::array<bool, 256> starts_{};       // bytes that some token begins with
  PairMap edges_;                        // trie: (node, byte) -> node
  std::vector<std::int32_t> node_ids_;   // node -> index of the token that ends there, or -1
};

}  // namespace caravan::text
