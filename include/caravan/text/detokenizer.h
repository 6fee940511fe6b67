#pragma once
// Incremental decoding of one sequence: never emits half a character.

#include <cstdint>
#include <string>

#include "caravan/text/tokenizer.h"

namespace caravan::text {

class Detokenizer {
 public:
  /// `tokenizer` outlives this object.
  explicit Detokenizer(const Tokenizer& tokenizer, bool show_special = false);

  /// Text that became complete with this token (may be empty). Bytes that can never become valid
  /// give U+FFFD.
  std::string push(std::int32_t id);
  /// The rest: an incomplete sequence at the end gives U+FFFD.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool show_special_;
  std::string pending_;
};

}  // namespace caravan::text
