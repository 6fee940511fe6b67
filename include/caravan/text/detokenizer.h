#pragma once
// Incremental decoding of one sequence: never emits half a character.

#include <cstdint>
#include <string>

#include "caravan/text/tokenizer.h"

namespace caravan::text {

/// Whether decoded text follows other text or begins one. Where it begins, the space that a
/// SentencePiece tokenizer put in front of the text is taken away again.
enum class DecodedText { kContinues, kBegins };

class Detokenizer {
 public:
  /// `tokenizer` outlives this object.
  explicit Detokenizer(const Tokenizer& tokenizer, bool show_special = false,
                       DecodedText start = DecodedText::kContinues);

  /// Text that became complete with this token (may be empty). Bytes that can never become valid
  /// give U+FFFD.
  std::string push(std::int32_t id);
  /// The rest: an incomplete sequence at the end gives U+FFFD.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool show_special_;
  bool drop_space_;  // in front of the first text
  std::string pending_;
};

}  // namespace caravan::text
