#include "caravan/text/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace caravan::text {
namespace {

enum class SequenceState { kValid, kIncomplete, kInvalid };

/// What starts at one position: a character, the beginning of one that the end of the text cuts
/// off, or a maximal subpart of an ill-formed sequence, with its length in bytes.
struct Sequence {
  SequenceState state = SequenceState::kInvalid;
  std::size_t length = 1;
};

/// Lead byte -> number of bytes and the range of the second byte (Unicode 15, table 3-7).
struct LeadByte {
  std::size_t length = 0;  // 0: not a lead byte
  unsigned char second_min = 0x80;
  unsigned char second_max = 0xBF;
};

LeadByte classify_lead(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {};
}

Sequence sequence_at(std::string_view text, std::size_t position) {
  const LeadByte lead = classify_lead(static_cast<unsigned char>(text[position]));
  if (lead.length == 0) return {SequenceState::kInvalid, 1};
  for (std::size_t i = 1; i < lead.length; ++i) {
    if (position + i == text.size()) return {SequenceState::kIncomplete, i};
    const auto byte = static_cast<unsigned char>(text[position + i]);
    const unsigned char low = i == 1 ? lead.second_min : 0x80;
    const unsigned char high = i == 1 ? lead.second_max : 0xBF;
    if (byte < low || byte > high) return {SequenceState::kInvalid, i};
  }
  return {SequenceState::kValid, lead.length};
}

/// First position at or after `position` that is not ASCII (or the end); eight bytes at a time.
std::size_t skip_ascii(std::string_view text, std::size_t position) {
  while (position + sizeof(std::uint64_t) <= text.size()) {
    std::uint64_t block;
    std::memcpy(&block, text.data() + position, sizeof block);
    if ((block & 0x8080808080808080U) != 0) break;
    position += sizeof block;
  }
  while (position < text.size() && static_cast<unsigned char>(text[position]) < 0x80) ++position;
  return position;
}

}  // namespace

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  std::size_t position = skip_ascii(text, 0);
  while (position < text.size()) {
    const Sequence sequence = sequence_at(text, position);
    if (sequence.state != SequenceState::kValid) return position;
    position = skip_ascii(text, position + sequence.length);
  }
  return std::nullopt;
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string result;
  result.reserve(bytes.size());
  std::size_t position = 0;
  while (position < bytes.size()) {
    const std::size_t ascii_end = skip_ascii(bytes, position);
    result.append(bytes.substr(position, ascii_end - position));
    if (ascii_end == bytes.size()) break;
    const Sequence sequence = sequence_at(bytes, ascii_end);
    if (sequence.state == SequenceState::kValid) {
      result.append(bytes.substr(ascii_end, sequence.length));
    } else {
      append_utf8(result, U'\uFFFD');
    }
    position = ascii_end + sequence.length;
  }
  return result;
}

std::size_t complete_utf8_prefix(std::string_view bytes) {
  // A cut-off sequence has at most three bytes, and only its first one can be a lead byte.
  for (std::size_t back = 1; back <= 3 && back <= bytes.size(); ++back) {
    const std::size_t position = bytes.size() - back;
    const auto byte = static_cast<unsigned char>(bytes[position]);
    if (byte >= 0x80 && byte < 0xC0) continue;
    const Sequence sequence = sequence_at(bytes, position);
    return sequence.state == SequenceState::kIncomplete && sequence.length == back ? position
                                                                                   : bytes.size();
  }
  return bytes.size();
}

std::int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

void append_utf8(std::string& out, char32_t code_point) {
  const bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  const std::uint32_t value = surrogate || code_point > 0x10FFFF ? 0xFFFDU : code_point;
  const auto tail = [value](int shift) {
    return static_cast<char>(0x80U | ((value >> shift) & 0x3FU));
  };
  if (value < 0x80) {
    out.push_back(static_cast<char>(value));
  } else if (value < 0x800) {
    out.push_back(static_cast<char>(0xC0U | (value >> 6)));
    out.push_back(tail(0));
  } else if (value < 0x10000) {
    out.push_back(static_cast<char>(0xE0U | (value >> 12)));
    out.push_back(tail(6));
    out.push_back(tail(0));
  } else {
    out.push_back(static_cast<char>(0xF0U | (value >> 18)));
    out.push_back(tail(12));
    out.push_back(tail(6));
    out.push_back(tail(0));
  }
}

}  // namespace caravan::text
