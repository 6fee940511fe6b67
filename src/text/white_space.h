#pragma once
// White space and word characters as regular expressions of the original tokenizer library see
// them.

#include <cstddef>
#include <string_view>

#include "split_pattern.h"

namespace caravan::text {

/// Bytes of White_Space (Unicode) at the start and at the end of `text`, which is valid UTF-8.
std::size_t leading_white_space(std::string_view text);
std::size_t trailing_white_space(std::string_view text);

/// The characters of words (\w: letters, marks, decimal digits, connectors and joiners).
class WordCharacters {
 public:
  WordCharacters();
  bool start(std::string_view text) const;  // whether they start it
  bool end(std::string_view text) const;

 private:
  bool contain(std::string_view character) const;

  SplitPattern pattern_;
};

}  // namespace caravan::text
