#pragma once
// What this process may use of its node: the hardware, cut by CPU masks, control groups (version 1
// and 2, as batch systems and containers set them) and limits of the process.
//
// `root` stands before /proc and /sys, for tests.

#include <cstdint>
#include <optional>
#include <string>

namespace caravan {

/// CPUs whose time the control groups grant, rounded down but at least 1; nothing without a quota.
std::optional<int> cpu_quota(const std::string& root = "");

/// CPUs that this process may keep busy: those of its mask, at most the quota. At least 1.
int usable_cpus(const std::string& root = "");

/// Bytes that one process of this node could still use: the least of the kernel's estimate, what is
/// left of the limits of its control groups (page cache counts as free), and what is left of
/// RLIMIT_AS.
std::int64_t available_memory_bytes(const std::string& root = "");

}  // namespace caravan
