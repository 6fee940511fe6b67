#pragma once
// How SentencePiece vocabularies spell their tokens: the space is U+2581, bytes are "<0xNN>".

#include <optional>
#include <string>
#include <string_view>

#include "caravan/text/tokenizer_spec.h"

namespace caravan::text {

inline constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581

/// Appends `text` with each U+2581 written as a space.
void append_with_plain_spaces(std::string& out, std::string_view text);
std::string with_plain_spaces(std::string_view text);

/// Bytes of an ordinary piece. Empty for a name with a plain space in it: text has none left when
/// it is compared with pieces, so that such a piece never comes out of it.
std::string bytes_of_piece(std::string_view name);

/// Notes in `spec` that token `id` is the byte that its `name` says, and returns this byte.
/// @throws InputError, naming `source`, for another name and for a byte that already has a token.
std::string add_byte_token(TokenizerSpec& spec, std::int32_t id, std::string_view name,
                           std::string_view source);

/// The byte that a name such as "<0x0A>" stands for.
std::optional<unsigned char> byte_of_piece(std::string_view name);

}  // namespace caravan::text
