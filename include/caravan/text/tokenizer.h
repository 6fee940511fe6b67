#pragma once
// Text to token ids and back. Time is linear (n log n inside one piece) for any input.
//
// User text never becomes a control token: encode() knows no special tokens; control tokens are ids
// that the chat formats insert. Leaves out: chat layouts (chat_format.h), streaming
// (detokenizer.h).

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "caravan/text/tokenizer_spec.h"

namespace caravan::text {

/// Where a text stands in the input; matters to SpacePrefix::kFirstSegmentUnlessSpaced alone.
enum class TextPlace { kStart, kBehindToken };

class Tokenizer {
 public:
  /// @throws ConfigError listing spec.problems().
  explicit Tokenizer(TokenizerSpec spec);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  const TokenizerSpec& spec() const;
  /// Number of ids, added tokens included.
  std::int64_t vocab_size() const;

  /// Ids of `text` as ordinary text: no BOS, never a special token. Added tokens that are not
  /// special are matched. A byte that the vocabulary lacks is left out, as Hugging Face does (kBpe
  /// only). Thread-safe; needs little memory beside the result and (kSentencePiece) a copy of the
  /// text.
  /// @throws InputError if `text` is not valid UTF-8.
  std::vector<std::int32_t> encode(std::string_view text,
                                   TextPlace place = TextPlace::kStart) const;
  /// As encode(), but the literal content of special tokens becomes their id: for templates and
  /// trusted text only.
  std::vector<std::int32_t> encode_with_special(std::string_view text,
                                                TextPlace place = TextPlace::kStart) const;

  /// Bytes of one token; empty for special tokens and unused or out-of-range ids. With
  /// `show_special` a special token gives its content.
  std::string_view token_bytes(std::int32_t id, bool show_special = false) const;
  bool is_special(std::int32_t id) const;
  /// Concatenated bytes, invalid UTF-8 kept, and the space that was put before the text too.
  std::string decode_bytes(std::span<const std::int32_t> ids, bool show_special = false) const;
  /// Id of the special token with this content, if there is one.
  std::optional<std::int32_t> special_id(std::string_view content) const;
  /// How much text one token can stand for: text of n bytes has at least n / this tokens.
  std::size_t max_token_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace caravan::text
