#pragma once
// Values as bytes, for the broadcast of a checkpoint's index and as the text that is hashed.
//
// Writer and reader have the same calls, so that one function lists the fields of a type for both.
// Both ends are the same build on the same kind of machine: no versions, no byte order.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "caravan/core/error.h"

namespace caravan::checkpoint {

class ByteWriter {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void field(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
  }
  void field(std::string_view text) {
    field(static_cast<std::int64_t>(text.size()));
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), bytes, bytes + text.size());
  }
  template <typename T>
  void field(const std::optional<T>& value) {
    field(value.has_value());
    if (value) field(*value);
  }
  /// A list, whose elements are written (here) or read by `each`.
  template <typename T, typename Each>
  void list(const std::vector<T>& values, Each&& each) {
    field(static_cast<std::int64_t>(values.size()));
    for (const T& value : values) each(value);
  }
  template <typename T>
  void list(const std::vector<T>& values) {
    list(values, [this](const T& value) { field(value); });
  }

  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void field(T& value) { std::memcpy(&value, next(sizeof(T)), sizeof(T)); }
  void field(std::string& text) {
    const std::size_t size = count();
    text.assign(reinterpret_cast<const char*>(next(size)), size);
  }
  template <typename T>
  void field(std::optional<T>& value) {
    bool present = false;
    field(present);
    value.reset();
    if (present) field(value.emplace());
  }
  template <typename T, typename Each>
  void list(std::vector<T>& values, Each&& each) {
    values.resize(count());
    for (T& value : values) each(value);
  }
  template <typename T>
  void list(std::vector<T>& values) {
    list(values, [this](T& value) { field(value); });
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  const std::byte* next(std::size_t size) {
    CARAVAN_ASSERT(size <= bytes_.size(), "{} bytes wanted, {} left", size, bytes_.size());
    const std::byte* begin = bytes_.data();
    bytes_ = bytes_.subspan(size);
    return begin;
  }
  // Every element takes a byte at least, so that a false count cannot allocate much.
  std::size_t count() {
    std::int64_t value = 0;
    field(value);
    CARAVAN_ASSERT(value >= 0 && static_cast<std::size_t>(value) <= bytes_.size(),
                   "a list of {} in {} bytes", value, bytes_.size());
    return static_cast<std::size_t>(value);
  }

  std::span<const std::byte> bytes_;
};

}  // namespace caravan::checkpoint
