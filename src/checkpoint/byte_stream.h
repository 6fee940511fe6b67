#pragma once
// Values as bytes, for the broadcast of a checkpoint's index and as the text that is hashed.
//
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
  void put(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
  }
  void put(std::string_view text) {
    put(static_cast<std::int64_t>(text.size()));
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), bytes, bytes + text.size());
  }
  template <typename T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  /// A list, each element by `put_element`.
  template <typename T, typename PutElement>
  void put_list(const std::vector<T>& values, PutElement&& put_element) {
    put(static_cast<std::int64_t>(values.size()));
    for (const T& value : values) put_element(value);
  }
  template <typename T>
  void put_list(const std::vector<T>& values) {
    put_list(values, [this](const T& value) { put(value); });
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
  void get(T& value) { std::memcpy(&value, next(sizeof(T)), sizeof(T)); }
  void get(std::string& text) {
    const std::size_t size = count();
    text.assign(reinterpret_cast<const char*>(next(size)), size);
  }
  template <typename T>
  void get(std::optional<T>& value) {
    bool present = false;
    get(present);
    value.reset();
    if (present) get(value.emplace());
  }
  template <typename T, typename GetElement>
  void get_list(std::vector<T>& values, GetElement&& get_element) {
    values.resize(count());
    for (T& value : values) get_element(value);
  }
  template <typename T>
  void get_list(std::vector<T>& values) {
    get_list(values, [this](T& value) { get(value); });
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
    get(value);
    CARAVAN_ASSERT(value >= 0 && static_cast<std::size_t>(value) <= bytes_.size(),
                   "a list of {} in {} bytes", value, bytes_.size());
    return static_cast<std::size_t>(value);
  }

  std::span<const std::byte> bytes_;
};

}  // namespace caravan::checkpoint
