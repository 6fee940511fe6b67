#pragma once
// A file written at given offsets, by several threads at a time.
//
// Leaves out: creating it and its final name (io/atomic_file.h).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "caravan/io/input_file.h"

namespace caravan::io {

class OutputFile {
 public:
  /// Opens an existing file. @throws IoError.
  explicit OutputFile(std::string path);

  const std::string& path() const { return path_; }

  /// Makes the file `bytes` bytes long and makes sure of the disk space for them, so that a disk
  /// too small is found before the work and not after. Where the file system cannot, writing tells.
  /// @throws IoError if there is not so much.
  void reserve(std::int64_t bytes);

  /// Writes at `offset`. Any thread; pieces in the same 4096 bytes may be written at a time too.
  /// From an aligned address (aligned_buffer.h) to an offset that is a multiple of
  /// kDirectAlignment, the bytes go to the disk itself: without a copy in the page cache, without
  /// waiting for other writers of the file, and so that reading them back reads the disk. Where the
  /// file system cannot do this, and for other addresses and offsets, they go through the page
  /// cache.
  /// @throws IoError naming file, offset and cause ("No space left on device").
  void write(std::int64_t offset, std::span<const std::byte> bytes);

  /// Waits until everything written is on the disk. Any thread. @throws IoError.
  void sync();

 private:
  void write_all(int descriptor, std::int64_t offset, std::span<const std::byte> bytes);
  std::size_t write_directly(std::int64_t offset, std::span<const std::byte> bytes);

  std::string path_;
  FileDescriptor descriptor_;
  FileDescriptor direct_;  // null where the file system has no such thing
};

}  // namespace caravan::io
