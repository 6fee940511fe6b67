#include "white_space.h"

#include "utf8_step.h"

namespace caravan::text {
namespace {

// Alphabetic is more than letters and marks: circled and squared Latin letters (Other_Alphabetic).
constexpr const char* kWordPattern =
    R"([\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149})"
    R"(\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}])";

bool is_white_space(std::string_view character) {
  const std::int32_t c = code_point_of(character);
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::string_view first_character(std::string_view text) {
  return text.substr(0, character_length(text.front()));
}

std::string_view last_character(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && is_continuation(text[begin])) --begin;
  return text.substr(begin);
}

}  // namespace

std::size_t leading_white_space(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size()) {
    const std::string_view character = first_character(text.substr(length));
    if (!is_white_space(character)) break;
    length += character.size();
  }
  return length;
}

std::size_t trailing_white_space(std::string_view text) {
  const std::size_t size = text.size();
  while (!text.empty()) {
    const std::string_view character = last_character(text);
    if (!is_white_space(character)) break;
    text.remove_suffix(character.size());
  }
  return size - text.size();
}

WordCharacters::WordCharacters() : pattern_(kWordPattern) {}

bool WordCharacters::contain(std::string_view character) const {
  if (character.size() == 1) {
    const char c = character.front();
    const auto is_between = [c](char first, char last) { return c >= first && c <= last; };
    return is_between('a', 'z') || is_between('A', 'Z') || is_between('0', '9') || c == '_';
  }
  return SplitMatcher(pattern_).next(character, 0).has_value();
}

bool WordCharacters::start(std::string_view text) const {
  return !text.empty() && contain(first_character(text));
}

bool WordCharacters::end(std::string_view text) const {
  return !text.empty() && contain(last_character(text));
}

}  // namespace caravan::text
