#include "protobuf_reader.h"

#include <bit>

#include "caravan/core/error.h"

namespace caravan::text {

std::optional<ProtobufField> ProtobufReader::next() {
  constexpr std::uint64_t kMaxNumber = (1U << 29) - 1;
  if (rest_.empty()) return std::nullopt;
  const std::uint64_t key = varint();
  ProtobufField field;
  CARAVAN_CHECK(key >> 3 >= 1 && key >> 3 <= kMaxNumber, InputError,
                "{}: expected a field number from 1 to {}, found {}", where_, kMaxNumber, key >> 3);
  field.number = static_cast<std::uint32_t>(key >> 3);
  switch (key & 7U) {
    case 0: field.value = varint(); return field;
    case 1:
      field.type = ProtobufField::Type::kFixed64;
      field.bytes = take(8);
      return field;
    case 2:
      field.type = ProtobufField::Type::kBytes;
      field.bytes = take(varint());
      return field;
    case 5:
      field.type = ProtobufField::Type::kFixed32;
      field.bytes = take(4);
      return field;
    default: break;
  }
  throw InputError(fmt::format("{}: field {} has wire type {}, expected 0, 1, 2 or 5", where_,
                               field.number, key & 7U));
}

std::uint64_t ProtobufReader::varint() {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(take(1).front());
    value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
    if (byte < 0x80) return value;
  }
  throw InputError(fmt::format("{}: a number has more than 10 bytes", where_));
}

std::string_view ProtobufReader::take(std::uint64_t num_bytes) {
  CARAVAN_CHECK(num_bytes <= rest_.size(), InputError,
                "{}: it ends early, {} bytes are announced and {} are left", where_, num_bytes,
                rest_.size());
  const std::string_view taken = rest_.substr(0, num_bytes);
  rest_.remove_prefix(num_bytes);
  return taken;
}

void ProtobufReader::expect(const ProtobufField& field, ProtobufField::Type type,
                            std::string_view name) const {
  CARAVAN_CHECK(field.type == type, InputError, "{}: {} (field {}) is not of the expected type",
                where_, name, field.number);
}

std::uint64_t ProtobufReader::number(const ProtobufField& field, std::string_view name) const {
  expect(field, ProtobufField::Type::kNumber, name);
  return field.value;
}

bool ProtobufReader::flag(const ProtobufField& field, std::string_view name) const {
  return number(field, name) != 0;
}

float ProtobufReader::real(const ProtobufField& field, std::string_view name) const {
  expect(field, ProtobufField::Type::kFixed32, name);
  std::uint32_t bits = 0;  // little-endian on the wire
  for (std::size_t i = field.bytes.size(); i-- > 0;) {
    bits = (bits << 8) | static_cast<unsigned char>(field.bytes[i]);
  }
  return std::bit_cast<float>(bits);
}

std::string_view ProtobufReader::bytes(const ProtobufField& field, std::string_view name) const {
  expect(field, ProtobufField::Type::kBytes, name);
  return field.bytes;
}

}  // namespace caravan::text
