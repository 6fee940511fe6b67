#include "caravan/core/machine_limits.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

namespace caravan {
namespace {

/// The names that the two versions give to the same things.
struct GroupFiles {
  const char* limit;
  const char* used;
  std::vector<std::string> cache;  // lines of memory.stat
};
const GroupFiles kVersion1{"/memory.limit_in_bytes",
                           "/memory.usage_in_bytes",
                           {"total_inactive_file", "total_active_file"}};
const GroupFiles kVersion2{"/memory.max", "/memory.current", {"inactive_file", "active_file"}};

std::optional<std::int64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;  // "max", or no such file
}

/// A group of this process: its folder, and those of the groups around it up to the root.
struct Group {
  bool version_1 = false;
  std::vector<std::string> folders;
};

/// The group that controls `controller` ("memory", "cpu"). In a container the path may be that
/// outside of it; then only the root is there.
std::optional<Group> group_of(const std::string& root, const std::string& controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  std::optional<Group> found;
  while (std::getline(file, line)) {  // number:controllers:path
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool version_1 = controllers.find("," + controller + ",") != std::string::npos;
    const bool version_2 = controllers == ",,";
    // Where both are mounted a controller belongs to one of them; version 1 names it.
    if (!version_1 && (!version_2 || found)) continue;
    Group group{version_1, {}};
    const std::string mount = root + "/sys/fs/cgroup" + (version_1 ? "/" + controller : "");
    std::string path = line.substr(second + 1);
    while (true) {
      group.folders.push_back(path == "/" ? mount : mount + path);
      if (path.empty() || path == "/") break;
      path.resize(path.rfind('/'));
    }
    found = std::move(group);
    if (version_1) break;
  }
  return found;
}

std::optional<std::int64_t> left_in(const std::string& folder, const GroupFiles& names) {
  const auto limit = read_number(folder + names.limit);
  const auto used = read_number(folder + names.used);
  if (!limit || !used) return std::nullopt;
  std::ifstream stat(folder + "/memory.stat");
  std::string name;
  std::int64_t bytes = 0;
  std::int64_t cache = 0;
  while (stat >> name >> bytes) {
    if (std::find(names.cache.begin(), names.cache.end(), name) != names.cache.end()) {
      cache += bytes;
    }
  }
  return std::max<std::int64_t>(0, *limit - *used + cache);
}

/// CPUs' worth of time that a group has.
std::optional<double> quota_of(const std::string& folder, bool version_1) {
  std::int64_t quota = 0;
  std::int64_t period = 0;
  if (version_1) {
    quota = read_number(folder + "/cpu.cfs_quota_us").value_or(-1);
    period = read_number(folder + "/cpu.cfs_period_us").value_or(0);
  } else {
    std::ifstream file(folder + "/cpu.max");
    if (!(file >> quota >> period)) return std::nullopt;
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return static_cast<double>(quota) / static_cast<double>(period);
}

std::optional<std::int64_t> available_of_kernel(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    std::int64_t kib = 0;
    if (words >> name >> kib && name == "MemAvailable:") return kib * 1024;
  }
  return std::nullopt;
}

std::optional<std::int64_t> left_of_address_space(const std::string& root) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  const auto pages = read_number(root + "/proc/self/statm");
  const std::int64_t mapped = pages.value_or(0) * ::sysconf(_SC_PAGESIZE);
  return std::max<std::int64_t>(0, static_cast<std::int64_t>(limit.rlim_cur) - mapped);
}

}  // namespace

std::optional<int> cpu_quota(const std::string& root) {
  const auto group = group_of(root, "cpu");
  if (!group) return std::nullopt;
  std::optional<double> least;
  for (const std::string& folder : group->folders) {
    if (const auto quota = quota_of(folder, group->version_1)) {
      least = std::min(*quota, least.value_or(*quota));
    }
  }
  if (!least) return std::nullopt;
  return static_cast<int>(std::clamp(*least, 1.0, double{std::numeric_limits<int>::max()}));
}

int usable_cpus(const std::string& root) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const bool known = ::sched_getaffinity(0, sizeof(mask), &mask) == 0;
  const int count = known ? std::max(1, CPU_COUNT(&mask)) : 1;
  return std::min(count, cpu_quota(root).value_or(count));
}

std::int64_t available_memory_bytes(const std::string& root) {
  const auto physical =
      static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  std::int64_t available = available_of_kernel(root).value_or(physical);
  if (const auto left = left_of_address_space(root)) available = std::min(available, *left);
  if (const auto group = group_of(root, "memory")) {
    for (const std::string& folder : group->folders) {
      const auto left = left_in(folder, group->version_1 ? kVersion1 : kVersion2);
      if (left) available = std::min(available, *left);
    }
  }
  return available;
}

}  // namespace caravan
