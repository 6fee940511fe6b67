#include "caravan/io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "caravan/core/error.h"
#include "caravan/core/log.h"

namespace caravan::io {
namespace {

constexpr int kMaxNameAttempts = 100;
constexpr std::size_t kMaxPieceBytes = std::size_t{1} << 30;

std::string error_text(int number) { return std::generic_category().message(number); }

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

void check_closed(FileDescriptor descriptor, const std::string& path) {
  // Network file systems report a full disk or quota as late as here.
  CARAVAN_CHECK(::close(descriptor.release()) == 0, IoError, "closing {} failed: {}", path,
                error_text(errno));
}

void sync_path(const std::string& path, int flags) {
  FileDescriptor descriptor(::open(path.c_str(), flags | O_CLOEXEC));
  CARAVAN_CHECK(static_cast<bool>(descriptor), IoError, "opening {} to sync it failed: {}", path,
                error_text(errno));
  // Some network file systems know no fsync for folders and say EINVAL.
  CARAVAN_CHECK(::fsync(descriptor.get()) == 0 || ((flags & O_DIRECTORY) != 0 && errno == EINVAL),
                IoError, "syncing {} failed: {}", path, error_text(errno));
  check_closed(std::move(descriptor), path);
}

}  // namespace

TemporaryName::TemporaryName(std::string target) : target_(std::move(target)) {
  std::error_code ignored;
  CARAVAN_CHECK(!std::filesystem::is_directory(target_, ignored), CannotCreateError,
                "{} is a folder, expected the name of a file to write", target_);
  for (int attempt = 0; attempt < kMaxNameAttempts; ++attempt) {
    path_ = fmt::format("{}.part-{}", target_, static_cast<long>(::getpid()) + attempt);
    FileDescriptor descriptor(::open(path_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666));
    if (descriptor) return;
    const int number = errno;
    CARAVAN_CHECK(number == EEXIST, CannotCreateError, "cannot create {}: {}", path_,
                  error_text(number));
  }
  throw CannotCreateError(fmt::format("{} temporary files of {} exist already; remove {}.part-*",
                                      kMaxNameAttempts, target_, target_));
}

TemporaryName::~TemporaryName() {
  if (committed_) return;
  if (::unlink(path_.c_str()) != 0 && errno != ENOENT)
    log::warning("cannot remove the temporary file {}: {}", path_, error_text(errno));
}

void TemporaryName::commit() {
  sync_path(path_, O_RDONLY);
  CARAVAN_CHECK(::rename(path_.c_str(), target_.c_str()) == 0, IoError,
                "renaming {} to {} failed: {}", path_, target_, error_text(errno));
  committed_ = true;
  sync_path(folder_of(target_), O_RDONLY | O_DIRECTORY);
}

AtomicFile::AtomicFile(std::string target)
    : name_(std::move(target)), descriptor_(::open(name_.path().c_str(), O_WRONLY | O_CLOEXEC)) {
  CARAVAN_CHECK(static_cast<bool>(descriptor_), CannotCreateError, "cannot open {}: {}",
                name_.path(), error_text(errno));
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done =
        ::write(descriptor_.get(), bytes.data(), std::min(bytes.size(), kMaxPieceBytes));
    if (done < 0) {
      const int number = errno;
      if (number == EINTR) continue;
      throw IoError(fmt::format("writing {} failed after {} bytes with {} bytes left to write: {}",
                                name_.path(), written_bytes_, bytes.size(), error_text(number)));
    }
    written_bytes_ += done;
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text.data(), text.size())));
}

void AtomicFile::commit() {
  check_closed(std::move(descriptor_), name_.path());
  name_.commit();
}

void remove_temporary_files(const std::string& target) {
  const std::string start = std::filesystem::path(target).filename().string() + ".part-";
  std::error_code error;
  std::filesystem::directory_iterator entry(folder_of(target), error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(start) || name.size() == start.size() ||
        name.find_first_not_of("0123456789", start.size()) != std::string::npos) {
      continue;
    }
    std::error_code fault;
    if (std::filesystem::remove(entry->path(), fault)) {
      log::info("removed {}, left behind by a run that was killed", entry->path().string());
    } else if (fault) {
      log::warning("cannot remove {}: {}", entry->path().string(), fault.message());
    }
  }
}

std::int64_t free_disk_bytes(const std::string& path) {
  std::error_code ignored;
  const std::string place = std::filesystem::is_directory(path, ignored) ? path : folder_of(path);
  struct statvfs status = {};
  CARAVAN_CHECK(::statvfs(place.c_str(), &status) == 0, IoError,
                "cannot query the file system of {}: {}", place, error_text(errno));
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(status.f_bavail, status.f_frsize, &bytes))
    return std::numeric_limits<std::int64_t>::max();
  return bytes;
}

bool same_file(const std::string& first, const std::string& second) {
  struct stat a = {};
  struct stat b = {};
  return ::stat(first.c_str(), &a) == 0 && ::stat(second.c_str(), &b) == 0 &&
         a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace caravan::io
