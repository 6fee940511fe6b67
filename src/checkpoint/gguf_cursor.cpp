#include "gguf_cursor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"

namespace caravan::checkpoint {
namespace {

// The vocabulary of the largest models takes some tens of MiB.
constexpr std::int64_t kMaxMemoryBytes = std::int64_t{256} << 20;
constexpr std::size_t kBufferBytes = 1 << 20;

enum class ValueType : std::uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

bool is_integer_type(ValueType type) {
  return type != ValueType::kF32 && type != ValueType::kF64 && type != ValueType::kString &&
         type != ValueType::kArray && type <= ValueType::kF64;
}

std::int64_t read_integer(GgufCursor& cursor, ValueType type, const std::string& what) {
  switch (type) {
    case ValueType::kU8: return cursor.number<std::uint8_t>(what);
    case ValueType::kI8: return cursor.number<std::int8_t>(what);
    case ValueType::kU16: return cursor.number<std::uint16_t>(what);
    case ValueType::kI16: return cursor.number<std::int16_t>(what);
    case ValueType::kU32: return cursor.number<std::uint32_t>(what);
    case ValueType::kI32: return cursor.number<std::int32_t>(what);
    case ValueType::kBool: return cursor.number<std::uint8_t>(what) != 0 ? 1 : 0;
    case ValueType::kU64: return from_unsigned(cursor.number<std::uint64_t>(what), what);
    case ValueType::kI64: return cursor.number<std::int64_t>(what);
    case ValueType::kF32:
    case ValueType::kF64:
    case ValueType::kString:
    case ValueType::kArray: break;
  }
  throw_internal_error(__FILE__, __LINE__, "type", what + " is no integer");
}

double read_real(GgufCursor& cursor, ValueType type, const std::string& what) {
  return type == ValueType::kF32 ? static_cast<double>(cursor.number<float>(what))
                                 : cursor.number<double>(what);
}

// Bytes of one value in the file, at least.
std::int64_t least_bytes(ValueType type) {
  switch (type) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool: return 1;
    case ValueType::kU16:
    case ValueType::kI16: return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32: return 4;
    case ValueType::kString:
    case ValueType::kArray:
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64: return 8;
  }
  return 1;  // a number that is no type, which is refused
}

template <typename T, typename Read>
std::vector<T> read_elements(GgufCursor& cursor, std::int64_t count, const std::string& what,
                             Read&& read) {
  cursor.charge(count * static_cast<std::int64_t>(sizeof(T)), what);
  std::vector<T> values;
  values.reserve(checked_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values.push_back(read());
  return values;
}

GgufValue read_array(GgufCursor& cursor, const std::string& what) {
  const auto type = static_cast<ValueType>(cursor.number<std::uint32_t>(what));
  const bool is_real = type == ValueType::kF32 || type == ValueType::kF64;
  CARAVAN_CHECK(type == ValueType::kString || is_real || is_integer_type(type), InputError,
                "{}: {} is an array of the unknown type {}", cursor.path(), what,
                static_cast<std::uint32_t>(type));
  const std::int64_t count = cursor.count(what, least_bytes(type));
  if (type == ValueType::kString) {
    return read_elements<std::string>(cursor, count, what, [&] { return cursor.text(what); });
  }
  if (is_real) {
    return read_elements<double>(cursor, count, what,
                                 [&] { return read_real(cursor, type, what); });
  }
  return read_elements<std::int64_t>(cursor, count, what,
                                     [&] { return read_integer(cursor, type, what); });
}

}  // namespace

std::int64_t GgufCursor::count(const std::string& what, std::int64_t least_bytes) {
  const auto value = number<std::uint64_t>(what);
  CARAVAN_CHECK(std::cmp_less_equal(value, remaining() / least_bytes), InputError,
                "{}: {} counts {}, more than the file has bytes for", path(), what, value);
  return static_cast<std::int64_t>(value);
}

std::string GgufCursor::text(const std::string& what, std::int64_t max_bytes) {
  const std::int64_t length = count(what);
  CARAVAN_CHECK(length <= max_bytes, InputError, "{}: {} has {} bytes, expected at most {}", path(),
                what, length, max_bytes);
  charge(length, what);
  std::string value(checked_cast<std::size_t>(length), '\0');
  take(reinterpret_cast<std::byte*>(value.data()), length, what);
  return value;
}

void GgufCursor::charge(std::int64_t bytes, const std::string& what) {
  charged_bytes_ += bytes;
  CARAVAN_CHECK(charged_bytes_ <= kMaxMemoryBytes, InputError,
                "{}: the metadata take more than {} MiB of memory at {}: no model has as much, "
                "download the file again",
                path(), kMaxMemoryBytes >> 20, what);
}

void GgufCursor::take(std::byte* out, std::int64_t count, const std::string& what) {
  CARAVAN_CHECK(count <= remaining(), InputError,
                "{}: {} needs {} bytes at byte {}, the file has {} left: it is truncated, download "
                "it again",
                path(), what, count, position(), remaining());
  while (count > 0) {
    if (used_ == buffer_.size()) refill();
    const std::size_t piece = std::min(checked_cast<std::size_t>(count), buffer_.size() - used_);
    std::memcpy(out, buffer_.data() + used_, piece);
    out += piece;
    used_ += piece;
    count -= static_cast<std::int64_t>(piece);
  }
}

void GgufCursor::refill() {
  buffer_begin_ += static_cast<std::int64_t>(buffer_.size());
  const auto left = static_cast<std::size_t>(file_.size() - buffer_begin_);
  buffer_.resize(std::min(left, kBufferBytes));
  used_ = 0;
  file_.read(buffer_begin_, buffer_);
}

GgufValue read_gguf_value(GgufCursor& cursor, const std::string& what) {
  const auto type = static_cast<ValueType>(cursor.number<std::uint32_t>(what));
  if (type == ValueType::kArray) return read_array(cursor, what);
  if (type == ValueType::kString) return cursor.text(what);
  if (type == ValueType::kF32 || type == ValueType::kF64) return read_real(cursor, type, what);
  if (type == ValueType::kBool) return read_integer(cursor, type, what) != 0;
  CARAVAN_CHECK(is_integer_type(type), InputError, "{}: {} has the unknown type {}", cursor.path(),
                what, static_cast<std::uint32_t>(type));
  return read_integer(cursor, type, what);
}

std::int64_t from_unsigned(std::uint64_t value, const std::string& what) {
  CARAVAN_CHECK(std::in_range<std::int64_t>(value), InputError, "{} is {}, beyond 2^63", what,
                value);
  return static_cast<std::int64_t>(value);
}

}  // namespace caravan::checkpoint
