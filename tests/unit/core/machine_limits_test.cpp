#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "caravan/core/machine_limits.h"
#include "support/temporary_folder.h"

namespace caravan {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

/// A tree of /proc and /sys.
class MachineLimits : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root() + path).parent_path());
    folder_.write(path.substr(1), text);
  }
  std::string root() const { return folder_.path(); }

  test::TemporaryFolder folder_;
};

TEST_F(MachineLimits, AreThoseOfTheKernelWithoutGroups) {
  write("/proc/meminfo", "MemTotal: 4096 kB\nHugePages_Total: 0\nMemAvailable:  2048 kB\n");
  EXPECT_EQ(available_memory_bytes(root()), 2 * kMiB);
  EXPECT_FALSE(cpu_quota(root()));
}

TEST_F(MachineLimits, Version2TakesTheStrictestGroup) {
  write("/proc/meminfo", "MemAvailable: 1048576 kB\n");
  write("/proc/self/cgroup", "0::/job/step\n");
  write("/sys/fs/cgroup/job/step/memory.max", "max\n");
  write("/sys/fs/cgroup/job/step/memory.current", "1000\n");
  write("/sys/fs/cgroup/job/memory.max", "104857600\n");
  write("/sys/fs/cgroup/job/memory.current", "52428800\n");
  write("/sys/fs/cgroup/job/memory.stat",
        "anon 41943040\ninactive_file 8388608\nactive_file 2097152\n");
  EXPECT_EQ(available_memory_bytes(root()), 60 * kMiB);
  write("/sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  EXPECT_FALSE(cpu_quota(root()));
  write("/sys/fs/cgroup/job/cpu.max", "250000 100000\n");
  EXPECT_EQ(cpu_quota(root()), 2);
  EXPECT_LE(usable_cpus(root()), 2);
  write("/sys/fs/cgroup/job/cpu.max", "50000 100000\n");
  EXPECT_EQ(usable_cpus(root()), 1);
}

TEST_F(MachineLimits, Version1KnowsItsControllersByName) {
  write("/proc/meminfo", "MemAvailable: 1048576 kB\n");
  write("/proc/self/cgroup",
        "12:cpuset:/other\n4:memory:/slurm/uid_0/job_7\n3:cpu,cpuacct:/slurm\n0::/unified\n");
  const std::string group = "/sys/fs/cgroup/memory/slurm/uid_0/job_7";
  write(group + "/memory.limit_in_bytes", "104857600\n");
  write(group + "/memory.usage_in_bytes", "20971520\n");
  write(group + "/memory.stat", "active_file 1\ntotal_active_file 4194304\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "20971520\n");
  EXPECT_EQ(available_memory_bytes(root()), 84 * kMiB);
  write("/sys/fs/cgroup/cpu/slurm/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu/slurm/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(cpu_quota(root()));
  write("/sys/fs/cgroup/cpu/slurm/cpu.cfs_quota_us", "150000\n");
  EXPECT_EQ(cpu_quota(root()), 1);
}

TEST_F(MachineLimits, AContainerSeesItsGroupAsTheRoot) {
  write("/proc/meminfo", "MemAvailable: 1048576 kB\n");
  write("/proc/self/cgroup", "4:memory:/docker/0123\n3:cpu:/docker/0123\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "10485760\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "20971520\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(available_memory_bytes(root()), 0);
  EXPECT_EQ(cpu_quota(root()), 2);
}

TEST(MachineLimitsHere, AreSane) {
  EXPECT_GE(usable_cpus(), 1);
  EXPECT_GT(available_memory_bytes(), kMiB);
}

}  // namespace
}  // namespace caravan
