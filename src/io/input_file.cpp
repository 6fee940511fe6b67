#include "caravan/io/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "caravan/core/log.h"
#include "caravan/io/aligned_buffer.h"

namespace caravan::io {
namespace {

constexpr std::int64_t kMaxPieceBytes = std::int64_t{1} << 30;  // pread stops short at 2 GiB
constexpr int kReadAttempts = 4;

std::string error_text(int number) { return std::generic_category().message(number); }

// Without O_NONBLOCK a pipe that nobody writes to would be waited for.
FileDescriptor open_to_read(const std::string& path) {
  FileDescriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!descriptor) {
    const int number = errno;
    throw MissingInputError(fmt::format("cannot open {}: {}", path, error_text(number)));
  }
  return descriptor;
}

}  // namespace

void FileDescriptorTraits::release(Handle handle) noexcept {
  if (::close(handle) != 0)
    log::warning("close of descriptor {} failed: {}", handle, error_text(errno));
}

InputFile::InputFile(std::string path) : InputFile(std::move(path), ::pread) {}

InputFile::InputFile(std::string path, ReadFunction read)
    : InputFile(path, open_to_read(path), std::move(read)) {}

InputFile::InputFile(std::string path, FileDescriptor descriptor)
    : InputFile(std::move(path), std::move(descriptor), ::pread) {}

InputFile::InputFile(std::string path, FileDescriptor descriptor, ReadFunction read)
    : path_(std::move(path)), read_(std::move(read)), descriptor_(std::move(descriptor)) {
  struct stat status = {};
  CARAVAN_CHECK(::fstat(descriptor_.get(), &status) == 0, MissingInputError, "cannot query {}: {}",
                path_, error_text(errno));
  CARAVAN_CHECK(!S_ISDIR(status.st_mode), MissingInputError, "{} is a folder, expected a file",
                path_);
  CARAVAN_CHECK(!S_ISFIFO(status.st_mode), MissingInputError, "{} is a pipe, expected a file",
                path_);
  size_ = status.st_size;
}

void InputFile::prefetch(std::int64_t offset, std::int64_t bytes) const {
  (void)::posix_fadvise(descriptor_.get(), offset, bytes, POSIX_FADV_WILLNEED);
}

void InputFile::bypass_cache() {
  direct_ = FileDescriptor(::open(path_.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
}

void InputFile::read(std::int64_t offset, std::span<std::byte> destination) {
  CARAVAN_ASSERT(offset >= 0, "offset {} in {}", offset, path_);
  const std::size_t done = read_directly(offset, destination);
  read_cached(offset + static_cast<std::int64_t>(done), destination.subspan(done));
  if (observer_) observer_(offset, destination);
}

// What cannot be read so, or fails, is left to the ordinary way, which also reports.
std::size_t InputFile::read_directly(std::int64_t offset, std::span<std::byte> destination) {
  const auto address = reinterpret_cast<std::uintptr_t>(destination.data());
  const std::size_t size = destination.size() - destination.size() % kDirectAlignment;
  if (!direct_ || size == 0 || offset % kDirectAlignment != 0 || address % kDirectAlignment != 0)
    return 0;
  const ssize_t got =
      read_(direct_.get(), destination.data(), std::min<std::size_t>(size, kMaxPieceBytes), offset);
  if (got <= 0) return 0;
  std::atomic_ref(bytes_read_).fetch_add(got, std::memory_order_relaxed);
  return static_cast<std::size_t>(got);
}

void InputFile::read_cached(std::int64_t offset, std::span<std::byte> destination) {
  int attempts_left = kReadAttempts;
  while (!destination.empty()) {
    const auto wanted = std::min(destination.size(), static_cast<std::size_t>(kMaxPieceBytes));
    const ssize_t got = read_(descriptor_.get(), destination.data(), wanted, offset);
    if (got < 0) {
      const int number = errno;
      if (number == EINTR) continue;
      if (number == EIO && --attempts_left > 0) {
        log::warning("reading {} at byte {} failed ({}); trying again", path_, offset,
                     error_text(number));
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        continue;
      }
      throw IoError(fmt::format("reading {} bytes of {} at byte {} failed: {}", wanted, path_,
                                offset, error_text(number)));
    }
    CARAVAN_CHECK(got > 0, IoError,
                  "{} ends at byte {}, expected {} more bytes: the file was truncated", path_,
                  offset, destination.size());
    offset += got;
    std::atomic_ref(bytes_read_).fetch_add(got, std::memory_order_relaxed);
    destination = destination.subspan(static_cast<std::size_t>(got));
  }
}

std::string read_text_file(const std::string& path, std::int64_t max_bytes) {
  InputFile file(path);
  CARAVAN_CHECK(file.size() <= max_bytes, InputError, "{} has {} bytes, expected at most {}", path,
                file.size(), max_bytes);
  std::string text(checked_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text.data(), text.size())));
  return text;
}

}  // namespace caravan::io
