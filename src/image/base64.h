#pragma once
// Strict base64 (RFC 4648, section 4): one alphabet, padding required, nothing else between.

#include <cstddef>
#include <string_view>
#include <vector>

namespace caravan::image {

/// @throws InputError with the position of the first character that is not base64.
std::vector<std::byte> decode_base64(std::string_view text);

}  // namespace caravan::image
