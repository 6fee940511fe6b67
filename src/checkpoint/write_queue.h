#pragma once
// One thread that does what it is given in order, so that reading and writing overlap.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <thread>

namespace caravan::checkpoint {

class WriteQueue {
 public:
  /// @param max_bytes  that tasks may hold; post() waits while there are more
  explicit WriteQueue(std::int64_t max_bytes);
  /// Drops tasks that have not begun.
  ~WriteQueue();
  WriteQueue(const WriteQueue&) = delete;
  WriteQueue& operator=(const WriteQueue&) = delete;

  /// Tasks behind one that threw are dropped.
  /// @throws what an earlier task threw.
  void post(std::packaged_task<void()> task, std::int64_t bytes);
  /// Waits until all is done. @throws what a task threw.
  void drain();

 private:
  struct Task {
    std::packaged_task<void()> run;
    std::int64_t bytes = 0;
  };
  void work();
  bool is_idle() const { return tasks_.empty() && !busy_; }

  std::int64_t max_bytes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::int64_t bytes_ = 0;  // of tasks that are not done
  bool busy_ = false;
  bool stopped_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace caravan::checkpoint
