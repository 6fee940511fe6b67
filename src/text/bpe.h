#pragma once
// Byte-pair encoding of one piece: merge the adjacent pair of lowest rank (leftmost among equals)
// until none is left. It starts from bytes, or from characters (kSentencePiece). Leaves out:
// cutting text into pieces (split_pattern.h).
//
// Long pieces are not merged pair by pair. A sequence of tokens is the encoding of its text if and
// only if each token encodes to itself and each two neighbours encode to themselves: until a merge
// crosses a border, the two sides of it merge as they would alone. Only one such sequence exists,
// so a search from left to right (longest token first, back on a dead end) finds it with one bit
// of memory per byte, and meets each position at most once.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pair_map.h"
#include "vocabulary.h"

namespace caravan::text {

class Bpe {
 public:
  /// Working memory of one thread, to be used again for many pieces.
  struct Scratch {
    std::vector<std::int32_t> parts;
    std::vector<std::int32_t> ranks;
    std::vector<std::uint64_t> open;  // one bit per position: not yet known as a dead end
    struct KnownPair {
      std::int32_t left = kNoToken;
      std::int32_t right = kNoToken;
      bool compatible = false;
    };
    std::vector<KnownPair> known_pairs;
    std::string known_bytes;
  };

  /// @pre spec.problems() is empty. Both arguments outlive this object.
  Bpe(const TokenizerSpec& spec, const Vocabulary& vocabulary);

  /// Appends the ids of `piece` to `ids`.
  void encode(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& ids) const;

 private:
  std::int32_t num_ids() const { return vocabulary_->size() + num_extra_units(); }
  std::int32_t num_extra_units() const { return static_cast<std::int32_t>(extra_units_.size()); }
  std::string_view bytes(std::int32_t id) const;
  std::int32_t token_or_unit(std::string_view bytes) const;

  void add_byte_units();
  void add_character_units();
  void add_listed_merges(const TokenizerSpec& spec);
  void add_all_splits();
  void rank_by_score(const std::vector<float>& scores);
  void find_stable_tokens();
  void build_trie();
  void find_word_ends();

  /// Length of the unit that `text` begins with, and its id (kNoToken if there is none).
  std::size_t unit_length(char first) const;
  std::int32_t unit_of(std::string_view unit) const;
  bool all_units_known(std::string_view text) const;

  void encode_word(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  /// Byte that has no token of its own: left out, or the unknown token where that is ordinary.
  void encode_with_missing_bytes(std::string_view piece, Scratch& scratch,
                                 std::vector<std::int32_t>& ids) const;
  /// Character that is no unit: one token per byte, across which nothing merges.
  void encode_with_missing_characters(std::string_view piece, Scratch& scratch,
                                      std::vector<std::int32_t>& ids) const;
  void encode_known(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  void encode_long(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  /// Spells the extra units that are left in `ids` from `first` on.
  void spell_extra_units(std::vector<std::int32_t>& ids, std::size_t first) const;

  void start_parts(std::string_view bytes, Scratch& scratch) const;
  /// Merges scratch.parts to the end. False, and at once, if a merge would cross the border behind
  /// the first `num_left` parts (0: no border).
  bool merge_parts(Scratch& scratch, std::size_t num_left) const;
  std::int32_t rank_of(std::int32_t left, std::int32_t right) const;
  bool compatible(std::int32_t left, std::int32_t right, Scratch& scratch) const;
  std::int32_t longest_stable_prefix(std::string_view text) const;
  bool is_stable(std::int32_t id) const { return stable_[static_cast<std::size_t>(id)]; }

  const Vocabulary* vocabulary_;
  bool whole_pieces_;                         // a piece that is a token is emitted without merging
  bool characters_;                           // the units are characters, not bytes
  bool cuts_words_ = false;                   // no token has a space behind another character
  std::array<std::int32_t, 256> byte_ids_{};  // of the units, or (characters_) of the byte tokens
  bool bytes_missing_ = false;
  std::int32_t unknown_id_ = kNoToken;

  PairMap units_;  // (code point, 0) -> id
  // Characters that occur in tokens without being one; their ids follow those of the vocabulary.
  std::vector<std::string> extra_units_;

  PairMap merges_;                      // (left, right) -> number of the merge
  std::vector<std::int32_t> results_;   // merge -> merged id
  std::vector<std::int32_t> ranks_;     // merge -> rank; empty: its number
  std::vector<bool> stable_;            // tokens that encode to themselves
  PairMap edges_;                       // trie of the stable tokens: (node, byte) -> node
  std::vector<std::int32_t> node_ids_;  // node -> token that ends there
  std::vector<std::int32_t> shorter_;   // token -> longest stable token that is a proper prefix
};

}  // namespace caravan::text
