#pragma once
// Threads that wait for disks more than they compute: more of them than there are CPUs, so that
// reading, computing and writing overlap.

#include <functional>

namespace caravan::checkpoint {

/// How many to use for reading and writing on this machine.
int num_worker_threads();

/// Calls `work` on `count` threads and returns when all are done. Threads must not wait for one
/// that threw.
/// @throws what the first of them threw. Fewer threads than asked for are no failure.
void run_workers(int count, const std::function<void()>& work);

}  // namespace caravan::checkpoint
