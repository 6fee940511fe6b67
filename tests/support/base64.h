#pragma once
// Base64 in test data.

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

inline std::string base64_encode(const std::string& bytes) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto byte = [&](std::size_t k) -> std::uint32_t {
      return k < bytes.size() ? static_cast<unsigned char>(bytes[k]) : 0;
    };
    const std::uint32_t bits = byte(i) << 16 | byte(i + 1) << 8 | byte(i + 2);
    for (std::size_t k = 0; k < 4; ++k) {
      text += i + k > bytes.size() ? '=' : digits[bits >> (18 - 6 * k) & 63];
    }
  }
  return text;
}

/// Little-endian float32 values.
inline std::vector<float> base64_floats(const std::string& text) {
  const std::string bytes = base64_decode(text);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

}  // namespace caravan::test
