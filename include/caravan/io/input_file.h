#pragma once
// A file opened for reading at given offsets, with plain reads: no memory mapping, so that a read
// error of a network file system is an exception and not a signal.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "caravan/core/unique_handle.h"

namespace caravan::io {

struct FileDescriptorTraits {
  using Handle = int;
  static Handle null() noexcept { return -1; }
  static void release(Handle handle) noexcept;
};
using FileDescriptor = UniqueHandle<FileDescriptorTraits>;

class InputFile {
 public:
  /// What reads: pread(2), or a stand-in in tests.
  using ReadFunction = std::function<ssize_t(int, void*, std::size_t, off_t)>;
  /// Sees the bytes of each read and their offset, on the thread that reads.
  using ReadObserver = std::function<void(std::int64_t, std::span<const std::byte>)>;

  /// @throws MissingInputError if `path` does not exist, is a folder or a pipe, or cannot be
  /// opened.
  explicit InputFile(std::string path);
  InputFile(std::string path, ReadFunction read);
  /// A file that is open already, named `path` in messages.
  InputFile(std::string path, FileDescriptor descriptor);
  InputFile(std::string path, FileDescriptor descriptor, ReadFunction read);

  const std::string& path() const { return path_; }
  /// Bytes of the file when it was opened.
  std::int64_t size() const { return size_; }
  /// Bytes read through this object.
  std::int64_t bytes_read() const { return bytes_read_; }

  /// Fills `destination` from `offset`. Interrupted and short reads go on; EIO is tried again a few
  /// times. Any number of threads at a time.
  /// @throws IoError with file and offset if reading fails or the file ends before.
  void read(std::int64_t offset, std::span<std::byte> destination);

  /// From now on, every read that succeeds is shown to `observer` before it returns; what that
  /// throws, read() throws. @pre no read is under way
  void observe(ReadObserver observer) { observer_ = std::move(observer); }

  /// Lets the system read these bytes already, for a read() soon. A hint: never fails.
  void prefetch(std::int64_t offset, std::int64_t bytes) const;

  /// From now on, reads the disk itself and not the page cache where offset and address are
  /// multiples of kDirectAlignment (aligned_buffer.h) and the file system can. For files that are
  /// read once and whole.
  void bypass_cache();

 private:
  void read_cached(std::int64_t offset, std::span<std::byte> destination);
  std::size_t read_directly(std::int64_t offset, std::span<std::byte> destination);

  std::string path_;
  ReadFunction read_;
  ReadObserver observer_;  // may be empty
  FileDescriptor descriptor_;
  FileDescriptor direct_;  // null unless the cache is bypassed
  std::int64_t size_ = 0;
  std::int64_t bytes_read_ = 0;
};

/// The whole file as text.
/// @throws MissingInputError, IoError; InputError if it is longer than `max_bytes`.
std::string read_text_file(const std::string& path, std::int64_t max_bytes);

}  // namespace caravan::io
