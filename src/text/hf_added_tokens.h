#pragma once
// Added tokens of a Hugging Face folder: those of tokenizer.json and those of the files beside it.

#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "caravan/text/tokenizer_spec.h"
#include "json_fields.h"

namespace caravan::text {

using IdByName = std::unordered_map<std::string, std::int32_t>;

/// Grows `spec.tokens` so that `id` exists.
std::string& token_slot(TokenizerSpec& spec, std::int32_t id);

class AddedTokenTable {
 public:
  /// Whether a normalizer changes the text in which added tokens marked "normalized" are matched.
  enum class Normalizer { kNone, kBeforeAddedTokens };

  /// `spec` holds the vocabulary, whose names are `ids`, and gets the added tokens; it outlives
  /// this object.
  AddedTokenTable(TokenizerSpec& spec, IdByName ids, Normalizer normalizer = Normalizer::kNone);

  /// The list "added_tokens" of tokenizer.json (null if absent).
  void read_list(const Json* list);
  /// Added tokens, BOS and EOS of the files beside.
  void read_side_files(const TokenizerSideFiles& files);

  std::optional<std::int32_t> find(const std::string& name) const;

 private:
  void add(const Json& entry, std::int32_t id, const std::string& where);
  void add(AddedToken added, const std::string& where);
  /// A token of this content with the options of the one that has this id already.
  AddedToken known_or_new(std::int32_t id, const std::string& content) const;
  void read_decoder(const Json& decoder);
  void read_added_tokens(const std::string& text, const Json& special_map);
  void read_named_ids(const Json& config, const Json& special_map);
  void mark_special(const Json& special_map);

  TokenizerSpec& spec_;
  IdByName ids_;
  std::map<std::int32_t, std::string> names_;
  std::map<std::int32_t, std::size_t> places_;  // id -> index in spec.added_tokens
  Normalizer normalizer_;
};

}  // namespace caravan::text
