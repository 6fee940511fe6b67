#pragma once
// Incremental decoding of one sequence: never emits half a character.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "caravan/text/tokenizer.h"

namespace caravan::text {

/// Whether decoded text follows other text or begins one. Where it begins, the space that a
/// SentencePiece tokenizer put in front of the text is taken away again.
enum class DecodedText { kContinues, kBegins };

/// What text behind these tokens does: control tokens alone have no text that it could continue.
DecodedText text_behind(std::span<const std::int32_t> ids, const Tokenizer& tokenizer);

class Detokenizer {
 public:
  /// `tokenizer` outlives this object.
  explicit Detokenizer(const Tokenizer& tokenizer, bool show_special = false,
                       DecodedText start = DecodedText::kContinues);

  /// Text that became complete with this token (may be empty). Bytes that can never become valid
  /// give U+FFFD.
  std::string push(std::int32_t id);
  /// Where the text of a token begins that is pushed next: characters between all text so far and
  /// it. Bytes that were held back are such where the token does not continue them.
  std::int64_t characters_before(std::int32_t id) const;
  /// The rest: an incomplete sequence at the end gives U+FFFD.
  std::string finish();

 private:
  std::string_view bytes_of(std::int32_t id) const;

  const Tokenizer* tokenizer_;
  bool show_special_;
  bool drop_space_;  // in front of the first text
  std::string pending_;
};

}  // namespace caravan::text
