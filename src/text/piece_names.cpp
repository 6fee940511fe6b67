#include "piece_names.h"

#include <charconv>

#include "caravan/core/error.h"

namespace caravan::text {

void append_with_plain_spaces(std::string& out, std::string_view text) {
  while (true) {
    const std::size_t symbol = text.find(kSpaceSymbol);
    out.append(text.substr(0, symbol));
    if (symbol == std::string_view::npos) return;
    out.push_back(' ');
    text.remove_prefix(symbol + kSpaceSymbol.size());
  }
}

std::string with_plain_spaces(std::string_view text) {
  std::string result;
  append_with_plain_spaces(result, text);
  return result;
}

std::string bytes_of_piece(std::string_view name) {
  return name.find(' ') == std::string_view::npos ? with_plain_spaces(name) : std::string();
}

std::string add_byte_token(TokenizerSpec& spec, std::int32_t id, std::string_view name,
                           std::string_view source) {
  const auto byte = byte_of_piece(name);
  CARAVAN_CHECK(byte, InputError,
                "{}: byte token {} is called \"{}\", expected \"<0x00>\" to \"<0xFF>\"", source, id,
                name);
  spec.byte_ids.resize(256, -1);
  std::int32_t& known = spec.byte_ids[*byte];
  CARAVAN_CHECK(known < 0, InputError, "{}: tokens {} and {} are both \"{}\"", source, known, id,
                name);
  known = id;
  return std::string(1, static_cast<char>(*byte));
}

std::optional<unsigned char> byte_of_piece(std::string_view name) {
  constexpr std::string_view kShape = "<0x00>";
  if (name.size() != kShape.size() || !name.starts_with("<0x") || !name.ends_with('>')) {
    return std::nullopt;
  }
  unsigned char value = 0;
  const auto [end, error] = std::from_chars(name.data() + 3, name.data() + 5, value, 16);
  if (error != std::errc() || end != name.data() + 5) return std::nullopt;
  return value;
}

}  // namespace caravan::text
