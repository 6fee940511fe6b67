#pragma once
// Appends JSON to a string, field by field, in the order and with the digits that we choose. Never
// throws on content: invalid UTF-8 becomes U+FFFD.

#include <cstdint>
#include <string>
#include <string_view>

namespace caravan::batch {

/// A quoted, escaped JSON string.
void append_json_string(std::string& out, std::string_view text);

/// Shortest digits that read back as the same float32; infinities and NaN become -9999.0 (JSON has
/// none).
void append_json_float(std::string& out, float value);

}  // namespace caravan::batch
