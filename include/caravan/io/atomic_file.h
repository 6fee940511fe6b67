#pragma once
// Files that appear whole or not at all: written under a temporary name beside the target, synced,
// renamed.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "caravan/io/input_file.h"

namespace caravan::io {

/// What becomes of a file that has the name of the target when the new one is complete.
enum class ExistingTarget { kReplace, kKeep };

/// Longest ".part-<number>" that a temporary name adds to its target, in bytes.
inline constexpr std::int64_t kMaxTemporarySuffixBytes = 16;

/// A temporary name beside a target. Whoever writes the file (HDF5, AtomicFile) creates it.
class TemporaryName {
 public:
  /// Reserves "<target>.part-<number>" by creating it empty.
  /// @throws CannotCreateError if the folder does not exist or cannot be written, or `target` is a
  /// folder.
  explicit TemporaryName(std::string target);
  TemporaryName(const TemporaryName&) = delete;
  TemporaryName& operator=(const TemporaryName&) = delete;
  /// Removes the temporary file unless it was committed.
  ~TemporaryName();

  const std::string& path() const { return path_; }
  const std::string& target() const { return target_; }

  /// Syncs the file, renames it to the target and syncs the folder.
  /// @throws IoError; CannotCreateError if the target exists and is to be kept.
  void commit(ExistingTarget existing = ExistingTarget::kReplace);

 private:
  std::string target_;
  std::string path_;
  bool committed_ = false;
};

/// A file written from front to back.
class AtomicFile {
 public:
  /// @throws as TemporaryName.
  explicit AtomicFile(std::string target);

  /// @throws IoError naming the file, the bytes written so far and the cause ("No space left on
  /// device").
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);

  /// The target has the new content after this; without it the target is untouched.
  /// @throws as TemporaryName::commit.
  void commit(ExistingTarget existing = ExistingTarget::kReplace);

 private:
  TemporaryName name_;
  FileDescriptor descriptor_;
  std::int64_t written_bytes_ = 0;
};

/// Removes "<target>.part-<number>" that killed writers left behind. Best effort: a failure is
/// logged. @pre the caller holds a lock that keeps every other writer of `target` away, on all
/// hosts.
void remove_temporary_files(const std::string& target);

/// Temporary files beside `target` whose writers are gone, where nothing keeps other writers away.
/// The number in a name is a process of some host, so that a name of no process here proves little:
/// a file goes only if nobody has written to it either.
class Leftovers {
 public:
  /// Removes those that are older than a minute and remembers the rest.
  explicit Leftovers(const std::string& target);
  /// Removes those of the rest that have not changed meanwhile.
  void remove_unchanged();

 private:
  struct Entry {
    std::string path;
    std::int64_t bytes = 0;
    std::int64_t changed_ns = 0;
  };
  std::vector<Entry> entries_;
};

/// Bytes that this user can still write to the file system of `path` (a folder, or a file to be
/// made in one).
/// @throws IoError.
std::int64_t free_disk_bytes(const std::string& path);

/// Whether both names are one file. False if either does not exist.
bool same_file(const std::string& first, const std::string& second);

}  // namespace caravan::io
