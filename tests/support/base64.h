#pragma once
// Reading of base64 in test data.

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "caravan/core/error.h"

namespace caravan::test {

inline std::string base64_decode(const std::string& text) {
  const std::string alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    const auto value = alphabet.find(c);
    CARAVAN_ASSERT(value != std::string::npos, "not base64: {}", c);
    bits = (bits << 6) | static_cast<std::uint32_t>(value);
    if (++count % 4 != 1) bytes += static_cast<char>(bits >> ((3 - (count - 1) % 4) * 2));
  }
  return bytes;
}

/// Little-endian float32 values.
inline std::vector<float> base64_floats(const std::string& text) {
  const std::string bytes = base64_decode(text);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

}  // namespace caravan::test
