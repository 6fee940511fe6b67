#include "write_queue.h"

#include <utility>

#include "caravan/io/hdf5.h"

namespace caravan::checkpoint {

WriteQueue::WriteQueue(std::int64_t max_bytes)
    : max_bytes_(max_bytes), thread_([this] { work(); }) {}

WriteQueue::~WriteQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    tasks_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

void WriteQueue::post(std::packaged_task<void()> task, std::int64_t bytes) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || bytes_ == 0 || bytes_ + bytes <= max_bytes_; });
  if (failure_) std::rethrow_exception(failure_);
  tasks_.push_back({std::move(task), bytes});
  bytes_ += bytes;
  changed_.notify_all();
}

void WriteQueue::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_idle(); });
  if (failure_) std::rethrow_exception(failure_);
}

void WriteQueue::work() {
  const io::QuietHdf5 quiet;  // HDF5 prints errors per thread
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopped_ || !tasks_.empty(); });
    if (stopped_) return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    busy_ = true;
    lock.unlock();
    std::exception_ptr failure;
    try {
      std::future<void> result = task.run.get_future();
      task.run();
      result.get();
    } catch (...) {
      failure = std::current_exception();
    }
    task.run = {};  // frees what it held before others may add more
    lock.lock();
    busy_ = false;
    bytes_ -= task.bytes;
    if (failure) {
      failure_ = failure;
      tasks_.clear();
      bytes_ = 0;
    }
    changed_.notify_all();
  }
}

}  // namespace caravan::checkpoint
