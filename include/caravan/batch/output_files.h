#pragma once
// Names beside the output, the checks that an output may be written, and the lock against a second
// job on it.

#include <cstdint>
#include <string>
#include <vector>

namespace caravan::batch {

struct OutputNames {
  std::string output;    // ANSWERS.jsonl
  std::string journal;   // ANSWERS.jsonl.part
  std::string lock;      // ANSWERS.jsonl.lock
  std::string manifest;  // ANSWERS.manifest.json
  std::string folder;    // that they are in

  explicit OutputNames(std::string output);
};

enum class ExistingOutput { kRefuse, kReplace };

/// @throws UsageError if `path`, which `option` names for reading, is one of the files that the run
/// writes.
void check_not_replaced(const OutputNames& names, const std::string& option,
                        const std::string& path);

/// @throws CannotCreateError if the output exists (kRefuse).
void require_no_output(const OutputNames& names, ExistingOutput existing);

/// @param inputs         files that are read. @param input_folders  folders given as input.
/// @throws UsageError if the output is an input (also by another name), or lies in an input folder
/// where the next run would read it; CannotCreateError if it exists without a journal
/// (kRefuse), is no regular file, one of the names is too long or taken by something else than a
/// file, or the folder does not exist or cannot be written.
void check_output(const OutputNames& names, const std::vector<std::string>& inputs,
                  const std::vector<std::string>& input_folders, ExistingOutput existing);

/// Who holds a lock. `job` and `restarts` are the scheduler's, empty and 0 without one.
struct LockOwner {
  std::string host;
  std::int64_t pid = 0;
  std::int64_t started = 0;  // of the process, in the kernel's ticks: tells a reused pid apart
  std::string job;
  std::int64_t restarts = 0;
  bool operator==(const LockOwner&) const = default;
};

/// This process. Start time is read from /proc.
LockOwner this_process(std::string host, std::string job, std::int64_t restarts);

/// Whether the holder can no longer be running, as far as `seeker` can know: a dead process of the
/// same host, or an earlier start of the same requeued job.
bool is_stale(const LockOwner& holder, const LockOwner& seeker);

class OutputLock {
 public:
  /// Creates the lock file; takes over a stale one, or one of another host that was not refreshed
  /// for 30 minutes.
  /// @throws CannotCreateError naming the holder.
  OutputLock(std::string path, const LockOwner& owner);
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

  /// Shows that the holder is alive (updates the file's time). Call every few minutes.
  /// @throws IoError if another job has taken the lock over.
  void refresh();

  /// Gives the lock back before the end of this object.
  void release();

 private:
  std::string path_;
  LockOwner owner_;
};

/// Refuses to begin what the disk cannot hold even if every answer is short. @param open_records
/// are still to be added to the journal, `records` to be written to the output.
/// @throws IoError with both numbers of bytes.
void check_free_space(const OutputNames& names, std::int64_t open_records, std::int64_t records);

}  // namespace caravan::batch
