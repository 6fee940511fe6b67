#include "caravan/io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "caravan/core/error.h"
#include "caravan/core/log.h"

namespace caravan::io {
namespace {

constexpr int kMaxNameAttempts = 100;
constexpr std::int64_t kSecondsOfSilence = 60;  // then a writer is not merely slow
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

// All "<target>.part-<number>".
std::vector<std::string> temporary_files(const std::string& target) {
  const std::string start = std::filesystem::path(target).filename().string() + ".part-";
  std::vector<std::string> paths;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder_of(target), error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(start) && name.size() > start.size() &&
        name.find_first_not_of("0123456789", start.size()) == std::string::npos) {
      paths.push_back(entry->path().string());
    }
  }
  return paths;
}

void remove_leftover(const std::string& path) {
  std::error_code fault;
  if (std::filesystem::remove(path, fault)) {
    log::info("removed {}, left behind by a run that was killed", path);
  } else if (fault) {
    log::warning("cannot remove {}: {}", path, fault.message());
  }
}

std::optional<struct stat> status_of(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return status;
}

std::int64_t changed_ns(const struct stat& status) {
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

// Whether a process of this host has the number; one that only waits to be reaped does not count.
bool is_running(const std::string& process) {
  std::ifstream stat("/proc/" + process + "/stat");
  std::string line;
  if (!std::getline(stat, line)) return false;
  const std::size_t name_end = line.rfind(')');  // the command name may hold anything
  return name_end == std::string::npos || name_end + 2 >= line.size() ||
         (line[name_end + 2] != 'Z' && line[name_end + 2] != 'X');
}

// 0, or what went wrong: EEXIST if there is such a file. Not every file system can do that in one
// step; there a look must do.
int rename_to_new(const std::string& path, const std::string& target) {
  if (::renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE) == 0)
    return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  struct stat status = {};
  if (::lstat(target.c_str(), &status) == 0) return EEXIST;
  return ::rename(path.c_str(), target.c_str()) == 0 ? 0 : errno;
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

void TemporaryName::commit(ExistingTarget existing) {
  sync_path(path_, O_RDONLY);
  const int fault = existing == ExistingTarget::kKeep               ? rename_to_new(path_, target_)
                    : ::rename(path_.c_str(), target_.c_str()) == 0 ? 0
                                                                    : errno;
  CARAVAN_CHECK(fault != EEXIST, CannotCreateError,
                "{} appeared while its content was made, and is not replaced", target_);
  CARAVAN_CHECK(fault == 0, IoError, "renaming {} to {} failed: {}", path_, target_,
                error_text(fault));
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

void AtomicFile::commit(ExistingTarget existing) {
  check_closed(std::move(descriptor_), name_.path());
  name_.commit(existing);
}

void remove_temporary_files(const std::string& target) {
  for (const std::string& path : temporary_files(target)) remove_leftover(path);
}

Leftovers::Leftovers(const std::string& target) {
  for (const std::string& path : temporary_files(target)) {
    const auto status = status_of(path);
    if (!status || is_running(path.substr(path.rfind('-') + 1))) continue;
    struct timespec now = {};
    ::clock_gettime(CLOCK_REALTIME, &now);
    if (now.tv_sec - status->st_mtim.tv_sec > kSecondsOfSilence) {
      remove_leftover(path);
    } else {
      entries_.push_back({path, status->st_size, changed_ns(*status)});
    }
  }
}

void Leftovers::remove_unchanged() {
  for (const Entry& entry : entries_) {
    const auto status = status_of(entry.path);
    if (status && status->st_size == entry.bytes && changed_ns(*status) == entry.changed_ns)
      remove_leftover(entry.path);
  }
  entries_.clear();
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
