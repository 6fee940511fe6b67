#include "worker_threads.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "caravan/core/machine_limits.h"

namespace caravan::checkpoint {

int num_worker_threads() { return std::clamp(2 * usable_cpus(), 4, 8); }

void run_workers(int count, const std::function<void()>& work) {
  std::mutex mutex;
  std::exception_ptr failure;
  const auto guarded = [&] {
    try {
      work();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::jthread> threads;
  try {
    for (int i = 1; i < count; ++i) threads.emplace_back(guarded);
  } catch (const std::system_error&) {  // the limit of threads: fewer do as well
  }
  guarded();
  threads.clear();  // joins
  if (failure) std::rethrow_exception(failure);
}

}  // namespace caravan::checkpoint
