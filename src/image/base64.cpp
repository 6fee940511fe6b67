#include "base64.h"

#include <array>
#include <cstdint>

#include "caravan/core/error.h"
#include "caravan/core/log.h"

namespace caravan::image {
namespace {

constexpr std::uint8_t kNoDigit = 0xff;

constexpr std::array<std::uint8_t, 256> make_digits() {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<std::uint8_t, 256> digits{};
  digits.fill(kNoDigit);
  for (std::size_t i = 0; i < kAlphabet.size(); ++i)
    digits[static_cast<unsigned char>(kAlphabet[i])] = static_cast<std::uint8_t>(i);
  return digits;
}
constexpr std::array<std::uint8_t, 256> kDigits = make_digits();

std::uint32_t digit_at(std::string_view text, std::size_t position) {
  const std::uint8_t digit = kDigits[static_cast<unsigned char>(text[position])];
  CARAVAN_CHECK(digit != kNoDigit, InputError,
                "character {} of the base64 data is \"{}\", expected one of A-Z a-z 0-9 + / only",
                position + 1, log::escape_line(text.substr(position, 1)));
  return digit;
}

}  // namespace

std::vector<std::byte> decode_base64(std::string_view text) {
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  const std::size_t num_digits = text.size() - padding;
  std::vector<std::byte> bytes;
  bytes.reserve(text.size() / 4 * 3);
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < num_digits; ++i) {
    bits = (bits << 6) | digit_at(text, i);
    if (i % 4 != 3) continue;
    for (const int shift : {16, 8, 0}) bytes.push_back(static_cast<std::byte>(bits >> shift));
  }
  CARAVAN_CHECK(text.size() % 4 == 0, InputError,
                "the base64 data has {} characters, expected a multiple of 4 (with \"=\" at the "
                "end): it was cut short or lacks its padding",
                text.size());
  if (padding > 0) {
    const std::uint32_t unused = padding == 2 ? 0xfU : 0x3U;
    CARAVAN_CHECK((bits & unused) == 0, InputError,
                  "the last base64 digit has bits that belong to no byte: the data is damaged");
    bits >>= padding == 2 ? 4 : 2;
    if (padding == 1) bytes.push_back(static_cast<std::byte>(bits >> 8));
    bytes.push_back(static_cast<std::byte>(bits));
  }
  return bytes;
}

}  // namespace caravan::image
