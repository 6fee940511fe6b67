#pragma once
// White space and word characters as regular expressions of the original tokenizer library see
// them.

#include <cstddef>
#include <string_view>

namespace caravan::text {

/// Bytes of White_Space (Unicode) at the start and at the end of `text`, which is valid UTF-8.
std::size_t leading_white_space(std::string_view text);
std::size_t trailing_white_space(std::string_view text);

/// Whether `text` begins or ends with a character of a word (\w: letters, marks, decimal digits,
/// connectors and joiners).
bool starts_with_word(std::string_view text);
bool ends_with_word(std::string_view text);

}  // namespace caravan::text
