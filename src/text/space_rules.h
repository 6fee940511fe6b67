#pragma once
// What SentencePiece tokenizers do to white space before they encode: only spaces are concerned,
// and U+2581, which stands for them.

#include <string>
#include <string_view>

#include "caravan/text/tokenizer_spec.h"

namespace caravan::text {

class SpaceRules {
 public:
  explicit SpaceRules(const TokenizerSpec& spec)
      : prefix_(spec.space_prefix), remove_extra_(spec.remove_extra_spaces) {}

  enum class Segment { kFirst, kLater };
  /// `text` as the pieces spell it. Empty text stays empty.
  std::string apply(std::string_view text, Segment segment) const;

 private:
  bool puts_space(std::string_view text, Segment segment) const;

  SpacePrefix prefix_;
  bool remove_extra_;
};

}  // namespace caravan::text
