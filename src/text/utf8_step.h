#pragma once
// Walks over UTF-8 that is known to be valid, character by character.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace caravan::text {

/// Length of the character that begins with `first`.
constexpr std::size_t character_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

constexpr bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

/// Code point of one whole character.
constexpr std::int32_t code_point_of(std::string_view character) {
  const auto first = static_cast<unsigned char>(character.front());
  if (character.size() == 1) return first;
  std::int32_t value = first & (0x7F >> character.size());
  for (const char c : character.substr(1))
    value = (value << 6) | (static_cast<unsigned char>(c) & 0x3F);
  return value;
}

}  // namespace caravan::text
