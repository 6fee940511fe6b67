#pragma once
// Writes the fields of small SentencePiece models.

#include <cstring>
#include <string>

namespace caravan::test {

/// A field that holds up to 127 bytes, or more.
inline std::string bytes_field(unsigned number, const std::string& bytes) {
  std::string field(1, static_cast<char>(number << 3 | 2));
  std::size_t size = bytes.size();
  for (; size >= 128; size >>= 7) field.push_back(static_cast<char>(size | 128));
  field.push_back(static_cast<char>(size));
  return field + bytes;
}

/// A field that holds a number below 128.
inline std::string number_field(unsigned number, unsigned value) {
  std::string field;
  unsigned key = number << 3;
  for (; key >= 128; key >>= 7) field.push_back(static_cast<char>(key | 128));
  field.push_back(static_cast<char>(key));
  field.push_back(static_cast<char>(value));
  return field;
}

enum PieceType : unsigned {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

inline std::string piece(const std::string& name, float score, PieceType type) {
  std::string score_field(5, static_cast<char>(2 << 3 | 5));
  std::memcpy(score_field.data() + 1, &score, sizeof score);
  return bytes_field(1, bytes_field(1, name) + score_field + number_field(3, type));
}

}  // namespace caravan::test
