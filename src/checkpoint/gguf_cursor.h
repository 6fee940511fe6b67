#pragma once
// The metadata of a GGUF file, read from front to back: never beyond the file, and never more than
// a limit of memory, whatever counts the file claims.
//
// Leaves out: tensors (gguf).

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "caravan/checkpoint/gguf.h"
#include "caravan/io/input_file.h"

namespace caravan::checkpoint {

class GgufCursor {
 public:
  explicit GgufCursor(io::InputFile& file) : file_(file) {}

  const std::string& path() const { return file_.path(); }
  std::int64_t position() const { return buffer_begin_ + static_cast<std::int64_t>(used_); }
  std::int64_t remaining() const { return file_.size() - position(); }

  // Each names in its message what it reads. @throws InputError.

  template <typename T>
  T number(const std::string& what) {
    T value{};
    take(reinterpret_cast<std::byte*>(&value), sizeof(T), what);
    return value;
  }

  /// Of things that take at least `least_bytes` each in the file.
  std::int64_t count(const std::string& what, std::int64_t least_bytes = 1);

  std::string text(const std::string& what, std::int64_t max_bytes = kMaxTextBytes);

  /// Counts memory that what was read takes in the program.
  void charge(std::int64_t bytes, const std::string& what);

 private:
  static constexpr std::int64_t kMaxTextBytes = std::int64_t{64} << 20;

  void take(std::byte* out, std::int64_t count, const std::string& what);
  void refill();

  io::InputFile& file_;
  std::vector<std::byte> buffer_;
  std::int64_t buffer_begin_ = 0;
  std::size_t used_ = 0;
  std::int64_t charged_bytes_ = 0;
};

/// One value with its type in front. @throws InputError.
GgufValue read_gguf_value(GgufCursor& cursor, const std::string& what);

/// A number that must fit. @throws InputError.
std::int64_t from_unsigned(std::uint64_t value, const std::string& what);

}  // namespace caravan::checkpoint
