#include "chat_text.h"

#include <cstddef>

namespace caravan::text {
namespace {

/// What Python's str.isspace accepts, which is what a template's `trim` removes.
bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

/// Length of the space character that `text` begins with, or 0. White space has at most three
/// bytes.
std::size_t leading_space(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<char32_t>(static_cast<unsigned char>(text[i])) : U'\0';
  };
  if (byte(0) < 0x80) return is_space(byte(0)) ? 1 : 0;
  if (byte(0) < 0xE0) return is_space((byte(0) & 0x1F) << 6 | (byte(1) & 0x3F)) ? 2 : 0;
  if (byte(0) >= 0xF0) return 0;
  return is_space((byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F)) ? 3 : 0;
}

}  // namespace

std::string_view trim(std::string_view text, Ends ends) {
  while (ends != Ends::kLast) {
    const std::size_t length = leading_space(text);
    if (length == 0) break;
    text.remove_prefix(length);
  }
  while (ends != Ends::kFirst && !text.empty()) {
    std::size_t start = text.size() - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    if (leading_space(text.substr(start)) != text.size() - start) break;
    text = text.substr(0, start);
  }
  return text;
}

}  // namespace caravan::text
