#include "caravan/batch/output_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <thread>

#include "caravan/core/error.h"
#include "caravan/core/json_reader.h"
#include "caravan/core/log.h"
#include "caravan/io/atomic_file.h"
#include "caravan/io/input_file.h"

namespace caravan::batch {
namespace {

namespace fs = std::filesystem;

constexpr auto kAbandonedAfter = std::chrono::minutes(30);
constexpr std::int64_t kMaxLockBytes = 4096;

std::string folder_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

fs::path resolved(const std::string& path) {
  std::error_code error;
  fs::path result = fs::weakly_canonical(path, error);
  return error ? fs::absolute(path, error) : result;
}

// Start time (field 22 of /proc/<pid>/stat) of a process that runs; nothing for one that is gone or
// only waits to be reaped (in containers perhaps for ever).
std::optional<std::int64_t> process_start(std::int64_t pid) {
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(stat, line)) return std::nullopt;
  const auto name_end = line.rfind(')');  // the command name before it may hold anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  for (int number = 3; number <= 22; ++number) {
    if (!(fields >> field)) return std::nullopt;
    if (number == 3 && (field == "Z" || field == "X")) return std::nullopt;
  }
  return std::stoll(field);
}

std::optional<LockOwner> read_owner(const std::string& path) {
  std::string text;
  try {
    text = io::read_text_file(path, kMaxLockBytes);
  } catch (const Error&) {
    return std::nullopt;
  }
  try {
    const Json parsed = parse_json(text, path);
    const JsonReader json(parsed, path);
    return LockOwner{json.need_text("host"), json.need_integer("pid"), json.need_integer("started"),
                     json.need_text("job"), json.need_integer("restarts")};
  } catch (const InputError&) {
    return std::nullopt;
  }
}

bool is_abandoned(const std::string& path) {
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  return !error && fs::file_time_type::clock::now() - written > kAbandonedAfter;
}

// Whether `seeker` may take the lock of `holder` (nothing: unreadable). A process of the same host
// is looked up, however long it has not refreshed (suspended, or in a long read).
bool can_take(const std::string& path, const std::optional<LockOwner>& holder,
              const LockOwner& seeker) {
  if (holder && is_stale(*holder, seeker)) return true;
  const bool known_alive = holder && holder->host == seeker.host;
  return !known_alive && is_abandoned(path);
}

// Moves the lock of `holder` out of the way. Two seekers may both have judged it: the later one
// then finds the lock of the earlier in its hand and puts it back.
void displace(const std::string& path, const std::optional<LockOwner>& holder,
              const LockOwner& seeker) {
  const std::string aside = fmt::format("{}.stale-{}-{}", path, seeker.host, seeker.pid);
  if (::rename(path.c_str(), aside.c_str()) != 0) return;  // somebody else was faster
  if (read_owner(aside) != holder && ::link(aside.c_str(), path.c_str()) != 0) {
    log::warning("cannot put the lock {} of another job back: {}", path, std::strerror(errno));
  }
  ::unlink(aside.c_str());
}

std::string describe(const LockOwner& owner) {
  return fmt::format("process {} on {}{}", owner.pid, owner.host,
                     owner.job.empty() ? "" : fmt::format(" (job {})", owner.job));
}

// True: made. False: the file exists.
bool create_lock(const std::string& path, const LockOwner& owner) {
  const io::FileDescriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.get() < 0 && errno == EEXIST) return false;
  CARAVAN_CHECK(file.get() >= 0, CannotCreateError, "cannot create {}: {}", path,
                std::strerror(errno));
  const std::string text = Json{{"host", owner.host},
                                {"pid", owner.pid},
                                {"started", owner.started},
                                {"job", owner.job},
                                {"restarts", owner.restarts}}
                               .dump() +
                           "\n";
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    const int cause = errno;
    ::unlink(path.c_str());
    throw IoError(fmt::format("writing {} failed: {}", path, std::strerror(cause)));
  }
  return true;
}

// Found only at the end otherwise, when the answers are there and cannot be written.
void check_name_length(const std::string& path, std::int64_t more_bytes) {
  const std::string folder = folder_of(path);
  const auto check = [&](std::string_view kind, std::size_t bytes, long limit) {
    const auto needed = static_cast<std::int64_t>(bytes) + more_bytes;
    CARAVAN_CHECK(limit <= 0 || needed <= limit, CannotCreateError,
                  "--output: the {} of {} and of the temporary files beside it has up to {} bytes, "
                  "more than the {} that {} allows; choose a shorter one",
                  kind, path, needed, limit, folder);
  };
  check("name", fs::path(path).filename().string().size(),
        ::pathconf(folder.c_str(), _PC_NAME_MAX));
  check("path", path.size(), PATH_MAX - 1);
}

// Replacing a link or writing into a device is never what was meant.
void check_regular(std::string_view what, const std::string& path) {
  std::error_code error;
  const fs::file_status itself = fs::symlink_status(path, error);
  CARAVAN_CHECK(!fs::exists(itself) || fs::is_regular_file(itself), CannotCreateError,
                "the {} {} cannot be written: a folder, link, device or pipe has its name", what,
                path);
}

}  // namespace

OutputNames::OutputNames(std::string output_path)
    : output(std::move(output_path)),
      journal(output + ".part"),
      lock(output + ".lock"),
      folder(folder_of(output)) {
  fs::path base(output);
  if (base.extension() == ".jsonl") base.replace_extension();
  manifest = base.string() + ".manifest.json";
}

void check_not_replaced(const OutputNames& names, const std::string& option,
                        const std::string& path) {
  for (const std::string& written : {names.output, names.journal, names.lock, names.manifest}) {
    CARAVAN_CHECK(!io::same_file(path, written) && resolved(path) != resolved(written), UsageError,
                  "{} {} is the same file as {}, which the run writes: it would be overwritten",
                  option, path, written);
  }
}

void require_no_output(const OutputNames& names, ExistingOutput existing) {
  std::error_code error;
  CARAVAN_CHECK(existing == ExistingOutput::kReplace || !fs::exists(names.output, error),
                CannotCreateError, "--output {} exists; use --overwrite to replace it",
                names.output);
}

void check_output(const OutputNames& names, const std::vector<std::string>& inputs,
                  const std::vector<std::string>& input_folders, ExistingOutput existing) {
  for (const std::string& input : inputs) {
    if (input != "-") check_not_replaced(names, "--input", input);
  }
  check_name_length(names.output, io::kMaxTemporarySuffixBytes);
  check_name_length(names.manifest, io::kMaxTemporarySuffixBytes);
  std::error_code error;
  CARAVAN_CHECK(!fs::is_directory(names.output, error), CannotCreateError,
                "--output {} is a folder; expected the name of a file", names.output);
  const fs::file_status itself = fs::symlink_status(names.output, error);
  CARAVAN_CHECK(
      !fs::exists(itself) || fs::is_regular_file(itself), CannotCreateError,
      "--output {} is a link, a device or a pipe, and would be replaced by a file; expected "
      "the name of a regular file",
      names.output);
  check_regular("journal", names.journal);
  check_regular("lock", names.lock);
  check_regular("manifest", names.manifest);
  CARAVAN_CHECK(fs::is_directory(names.folder, error), CannotCreateError,
                "--output {}: there is no folder {}", names.output, names.folder);
  for (const std::string& folder : input_folders) {
    CARAVAN_CHECK(resolved(folder) != resolved(names.folder), UsageError,
                  "--output {} lies in the input folder {}: the next run would read it as prompts",
                  names.output, folder);
  }
  // With a journal beside it, the output may be this run's own, which was ended behind the rename.
  if (!fs::exists(names.journal, error)) require_no_output(names, existing);
  CARAVAN_CHECK(::access(names.folder.c_str(), W_OK) == 0, CannotCreateError,
                "--output {}: the folder {} cannot be written: {}", names.output, names.folder,
                std::strerror(errno));
}

LockOwner this_process(std::string host, std::string job, std::int64_t restarts) {
  const auto pid = static_cast<std::int64_t>(::getpid());
  return {std::move(host), pid, process_start(pid).value_or(0), std::move(job), restarts};
}

bool is_stale(const LockOwner& holder, const LockOwner& seeker) {
  if (holder.host == seeker.host) {
    const auto started = process_start(holder.pid);
    return !started || (holder.started != 0 && *started != holder.started);
  }
  return !holder.job.empty() && holder.job == seeker.job && holder.restarts < seeker.restarts;
}

OutputLock::OutputLock(std::string path, const LockOwner& owner)
    : path_(std::move(path)), owner_(owner) {
  // A launcher may report a killed job while its processes still go down: look again for a while.
  constexpr int kAttempts = 30;
  constexpr auto kPause = std::chrono::milliseconds(100);
  std::optional<LockOwner> holder;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (create_lock(path_, owner_)) {
      std::this_thread::sleep_for(kPause);  // a slower seeker of the lock before may take this one
      if (read_owner(path_) == owner_) return;
    }
    holder = read_owner(path_);
    if (can_take(path_, holder, owner_)) {
      log::warning("taking over {} of {}, which is no longer running", path_,
                   holder ? describe(*holder) : std::string("another job"));
      displace(path_, holder, owner_);
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
  throw CannotCreateError(
      fmt::format("{} exists: {} is writing this output. If that job is gone, remove the file and "
                  "run the same command again",
                  path_, holder ? describe(*holder) : std::string("another job")));
}

void OutputLock::release() {
  if (read_owner(path_) == owner_) ::unlink(path_.c_str());
}

OutputLock::~OutputLock() {
  try {
    release();
  } catch (const std::exception&) {
    // Out of memory, perhaps on the way out for that very reason. A lock that stays is found to be
    // stale.
  }
}

void OutputLock::refresh() {
  const std::optional<LockOwner> holder = read_owner(path_);
  CARAVAN_CHECK(!holder || *holder == owner_, IoError,
                "{} now belongs to {}: this run has lost its output to another one and ends. "
                "Finished records are kept",
                path_, describe(*holder));
  ::utimensat(AT_FDCWD, path_.c_str(), nullptr, 0);
}

void check_free_space(const OutputNames& names, std::int64_t open_records, std::int64_t records) {
  constexpr std::int64_t kLeastLineBytes = 256;  // an answer of a few tokens
  const std::int64_t needed = kLeastLineBytes * (open_records + records);
  const std::int64_t free_bytes = io::free_disk_bytes(names.folder);
  CARAVAN_CHECK(free_bytes >= needed, IoError,
                "--output {}: {} records need at least {} bytes in {}, but only {} are free. Make "
                "room, or choose another folder",
                names.output, records, needed, names.folder, free_bytes);
}

}  // namespace caravan::batch
