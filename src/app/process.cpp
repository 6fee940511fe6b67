// What subcommands share about the process: its standard output and its place in a launch.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

#include "caravan/app/commands.h"

namespace caravan::app {

namespace {

std::optional<int> number(const Environment& environment, const char* name) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  int value = 0;
  const auto [end, fault] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (fault != std::errc{} || end != text->data() + text->size()) return std::nullopt;
  return value;
}

struct LauncherVariables {
  const char* rank;
  const char* size;
};
constexpr LauncherVariables kOpenMpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"};
constexpr LauncherVariables kPmi = {"PMI_RANK", "PMI_SIZE"};
constexpr LauncherVariables kSlurm = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"};

std::optional<int> rank_of_many(const Environment& environment, LauncherVariables variables) {
  if (number(environment, variables.size).value_or(1) <= 1) return std::nullopt;
  return number(environment, variables.rank);
}

std::int64_t bytes_in_status(std::string_view name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(name)) continue;
    return std::strtoll(line.c_str() + name.size(), nullptr, 10) * 1024;  // the file has KiB
  }
  return 0;
}

}  // namespace

int launcher_rank(const Environment& environment) {
  for (const LauncherVariables& variables : {kOpenMpi, kPmi, kSlurm}) {
    if (const auto rank = rank_of_many(environment, variables)) return *rank;
  }
  return 0;
}

std::optional<int> surplus_rank(const Environment& environment) {
  const auto rank = rank_of_many(environment, kOpenMpi);
  return rank && *rank != 0 ? rank : std::nullopt;
}

std::int64_t peak_memory_bytes() { return bytes_in_status("VmHWM:"); }

std::int64_t private_memory_bytes() { return bytes_in_status("RssAnon:"); }

void open_standard_descriptors() {
  // The lowest free number is given out, so that each one closed is filled in turn.
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    const int opened = ::open("/dev/null", descriptor == STDIN_FILENO ? O_RDONLY : O_WRONLY);
    CARAVAN_CHECK(opened == descriptor, InternalError, "descriptor {} is closed and stays so: {}",
                  descriptor, std::strerror(errno));
  }
}

void print_result(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  CARAVAN_CHECK(written && std::fflush(stdout) == 0, IoError,
                "writing to standard output failed: {}", std::strerror(errno));
}

}  // namespace caravan::app
