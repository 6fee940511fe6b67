#pragma once
// Walks over the fields of one protobuf message ("Encoding", protobuf.dev) in memory. Every length
// is checked, nothing is copied. Leaves out: what the fields mean.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace caravan::text {

struct ProtobufField {
  enum class Type { kNumber, kFixed32, kFixed64, kBytes };
  std::uint32_t number = 0;
  Type type = Type::kNumber;
  std::uint64_t value = 0;  // kNumber
  std::string_view bytes;   // the others
};

class ProtobufReader {
 public:
  /// `where` names the message in errors.
  ProtobufReader(std::string_view message, std::string where)
      : rest_(message), where_(std::move(where)) {}

  /// The next field, or empty at the end of the message.
  /// @throws InputError for a damaged message.
  std::optional<ProtobufField> next();

  /// Contents of a field; `name` names it in errors. @throws InputError for another type.
  std::uint64_t number(const ProtobufField& field, std::string_view name) const;
  bool flag(const ProtobufField& field, std::string_view name) const;
  float real(const ProtobufField& field, std::string_view name) const;
  std::string_view bytes(const ProtobufField& field, std::string_view name) const;

 private:
  std::uint64_t varint();
  std::string_view take(std::uint64_t num_bytes);
  void expect(const ProtobufField& field, ProtobufField::Type type, std::string_view name) const;

  std::string_view rest_;
  std::string where_;
};

}  // namespace caravan::text
