#include "byte_alphabet.h"

#include <array>

namespace caravan::text {
namespace {

constexpr bool is_printable_byte(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

/// Code point - 0x100 -> byte, for the bytes that have no printable character of their own.
constexpr int kNumShifted = 68;
constexpr std::array<char, kNumShifted> make_shifted() {
  std::array<char, kNumShifted> table{};
  std::size_t next = 0;
  for (int byte = 0; byte < 256; ++byte) {
    if (!is_printable_byte(byte)) table[next++] = static_cast<char>(byte);
  }
  return table;
}
constexpr std::array<char, kNumShifted> kShifted = make_shifted();

}  // namespace

std::optional<std::string> bytes_from_alphabet(std::string_view token) {
  std::string bytes;
  for (std::size_t i = 0; i < token.size(); ++i) {
    const auto first = static_cast<unsigned char>(token[i]);
    if (first < 0x80) {
      if (!is_printable_byte(first)) return std::nullopt;
      bytes.push_back(token[i]);
      continue;
    }
    // All other characters of the alphabet (U+00A1 to U+0143) have two bytes in UTF-8.
    if (first < 0xC2 || first > 0xC5 || i + 1 == token.size()) return std::nullopt;
    const auto second = static_cast<unsigned char>(token[++i]);
    if ((second & 0xC0) != 0x80) return std::nullopt;
    const int code_point = ((first & 0x1F) << 6) | (second & 0x3F);
    if (code_point < 0x100) {
      if (!is_printable_byte(code_point)) return std::nullopt;
      bytes.push_back(static_cast<char>(code_point));
    } else {
      if (code_point - 0x100 >= kNumShifted) return std::nullopt;
      bytes.push_back(kShifted[static_cast<std::size_t>(code_point - 0x100)]);
    }
  }
  return bytes;
}

}  // namespace caravan::text
