#pragma once
// The byte-level alphabet of GPT-2 style vocabularies: every byte is written as one printable
// character.

#include <optional>
#include <string>
#include <string_view>

namespace caravan::text {

/// Bytes that `token` stands for; empty when a character is not in the alphabet or `token` is not
/// UTF-8.
std::optional<std::string> bytes_from_alphabet(std::string_view token);

}  // namespace caravan::text
