#pragma once
// Runs programs for system tests: collects what they print, and lets a test signal them while they
// run. Every child is waited for; one that outlives its deadline is killed and fails the test.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/temporary_folder.h"

namespace caravan::test {

struct ProcessOptions {
  std::string standard_input;                      // text
  std::map<std::string, std::string> environment;  // added to the test's own
  std::optional<rlim_t> max_file_bytes;            // RLIMIT_FSIZE
  double deadline_seconds = 180;
};

struct ProcessResult {
  int code = -1;  // exit code, or 128 + signal as a shell says it
  std::string out;
  std::string err;
  std::int64_t peak_bytes =
      0;  // largest resident memory; not below this program's own at the start
};

/// A child that runs in the background.
class Process {
 public:
  Process(const std::vector<std::string>& command, ProcessOptions options)
      : options_(std::move(options)) {
    const std::string input = folder_.write("in", options_.standard_input);
    child_ = ::fork();
    if (child_ < 0) throw std::runtime_error("fork failed");
    if (child_ == 0) start(command, input);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

  pid_t pid() const { return child_; }
  void signal(int number) const { ::kill(child_, number); }

  /// Whether the child has ended; then wait() returns at once.
  bool ended() {
    if (child_ > 0 && ::wait4(child_, &status_, WNOHANG, &usage_) == child_) child_ = 0;
    return child_ == 0;
  }

  ProcessResult wait() {
    const auto start = std::chrono::steady_clock::now();
    bool late = false;
    while (!ended()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      if (!late && elapsed.count() > options_.deadline_seconds) {
        late = true;
        ADD_FAILURE() << "the program did not end within " << options_.deadline_seconds << " s";
        ::kill(child_, SIGKILL);
      }
    }
    ProcessResult result;
    result.code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
    result.peak_bytes = static_cast<std::int64_t>(usage_.ru_maxrss) * 1024;
    result.out = read_whole(folder_.file("out"));
    result.err = read_whole(folder_.file("err"));
    return result;
  }

 private:
  // In the child: never returns.
  [[noreturn]] void start(const std::vector<std::string>& command, const std::string& input) const {
    const int flags = O_CREAT | O_WRONLY | O_TRUNC;
    const bool redirected =
        ::dup2(::open(input.c_str(), O_RDONLY), STDIN_FILENO) >= 0 &&
        ::dup2(::open(folder_.file("out").c_str(), flags, 0600), STDOUT_FILENO) >= 0 &&
        ::dup2(::open(folder_.file("err").c_str(), flags, 0600), STDERR_FILENO) >= 0;
    if (!redirected) ::_exit(126);
    for (const auto& [name, value] : options_.environment) {
      ::setenv(name.c_str(), value.c_str(), 1);
    }
    if (options_.max_file_bytes) {
      const rlimit limit{*options_.max_file_bytes, *options_.max_file_bytes};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    std::vector<char*> arguments;
    for (const std::string& argument : command) {
      arguments.push_back(const_cast<char*>(argument.c_str()));
    }
    arguments.push_back(nullptr);
    ::execvp(arguments.front(), arguments.data());
    ::_exit(127);
  }

  TemporaryFolder folder_;
  ProcessOptions options_;
  pid_t child_ = -1;
  int status_ = 0;
  rusage usage_{};
};

inline ProcessResult run_process(const std::vector<std::string>& command,
                                 const ProcessOptions& options = {}) {
  Process process(command, options);
  return process.wait();
}

/// Direct and indirect children of a process, from /proc.
inline std::vector<pid_t> descendants(pid_t parent) {
  std::vector<pid_t> found;
  std::ifstream children("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) +
                         "/children");
  for (pid_t child = 0; children >> child;) {
    found.push_back(child);
    const auto below = descendants(child);
    found.insert(found.end(), below.begin(), below.end());
  }
  return found;
}

/// Value of a variable in the environment of another process.
inline std::string environment_of(pid_t process, const std::string& name) {
  std::ifstream file("/proc/" + std::to_string(process) + "/environ");
  for (std::string entry; std::getline(file, entry, '\0');) {
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  }
  return {};
}

/// Looks every few milliseconds until `condition` holds; false after `seconds`.
inline bool wait_until(const std::function<bool()>& condition, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  while (!condition()) {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (elapsed.count() > seconds) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace caravan::test
