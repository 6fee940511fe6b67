#include "caravan/io/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "caravan/core/error.h"
#include "caravan/io/aligned_buffer.h"

namespace caravan::io {
namespace {

constexpr std::size_t kMaxPieceBytes = std::size_t{1} << 30;  // pwrite stops short at 2 GiB

std::string error_text(int number) { return std::generic_category().message(number); }

}  // namespace

OutputFile::OutputFile(std::string path)
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(), O_WRONLY | O_CLOEXEC)),
      direct_(::open(path_.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC)) {
  CARAVAN_CHECK(static_cast<bool>(descriptor_), IoError, "cannot open {} to write: {}", path_,
                error_text(errno));
}

void OutputFile::reserve(std::int64_t bytes) {
  int result = 0;
  do {
    result = ::fallocate(descriptor_.get(), 0, 0, bytes);
  } while (result != 0 && errno == EINTR);
  if (result == 0) return;
  const int number = errno;
  // Others mean that this file system does not reserve.
  CARAVAN_CHECK(number != ENOSPC && number != EDQUOT && number != EFBIG && number != EIO, IoError,
                "cannot reserve {} bytes for {}: {}", bytes, path_, error_text(number));
}

void OutputFile::write(std::int64_t offset, std::span<const std::byte> bytes) {
  const std::size_t written = write_directly(offset, bytes);
  offset += static_cast<std::int64_t>(written);
  bytes = bytes.subspan(written);
  if (bytes.empty()) return;
  write_all(descriptor_.get(), offset, bytes);
  // A mere hint, so that the sync at the end finds little to do; that one reports what fails.
  (void)::sync_file_range(descriptor_.get(), offset, std::ssize(bytes), SYNC_FILE_RANGE_WRITE);
}

// The whole blocks at the begin, if all is aligned: nobody else writes to any of them, so that the
// page cache and the disk cannot disagree.
std::size_t OutputFile::write_directly(std::int64_t offset, std::span<const std::byte> bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::size_t size = bytes.size() - bytes.size() % kDirectAlignment;
  if (!direct_ || size == 0 || offset % kDirectAlignment != 0 || address % kDirectAlignment != 0)
    return 0;
  const std::span<const std::byte> blocks = bytes.first(size);
  const ssize_t done =
      ::pwrite(direct_.get(), blocks.data(), std::min(blocks.size(), kMaxPieceBytes), offset);
  if (done == std::ssize(blocks)) return size;
  // Refused (EINVAL), interrupted or cut short: the ordinary way finishes it or finds the fault.
  write_all(descriptor_.get(), offset, blocks);
  return size;
}

void OutputFile::write_all(int descriptor, std::int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done =
        ::pwrite(descriptor, bytes.data(), std::min(bytes.size(), kMaxPieceBytes), offset);
    if (done < 0) {
      const int number = errno;
      if (number == EINTR) continue;
      throw IoError(fmt::format("writing {} bytes of {} at byte {} failed: {}", bytes.size(), path_,
                                offset, error_text(number)));
    }
    offset += done;
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

void OutputFile::sync() {
  CARAVAN_CHECK(::fsync(descriptor_.get()) == 0, IoError, "syncing {} failed: {}", path_,
                error_text(errno));
}

}  // namespace caravan::io
