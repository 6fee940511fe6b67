#pragma once
// UTF-8 validation, repair and the incremental form of both.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace caravan::text {

/// Byte offset of the first fault, or empty when `text` is valid UTF-8 (no surrogates, no overlong
/// forms, <= U+10FFFF).
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

/// `bytes` with U+FFFD for each maximal invalid subpart (Unicode 15, section 3.9, "best practice").
std::string replace_invalid_utf8(std::string_view bytes);

/// Length of the longest prefix of `bytes` that does not end inside a sequence that could still
/// become valid.
std::size_t complete_utf8_prefix(std::string_view bytes);

/// Characters of valid UTF-8.
std::int64_t count_characters(std::string_view text);

/// Appends the UTF-8 form of a code point (a surrogate or a value above U+10FFFF becomes U+FFFD).
void append_utf8(std::string& out, char32_t code_point);

}  // namespace caravan::text
