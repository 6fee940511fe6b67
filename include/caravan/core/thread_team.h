#pragma once
// A fixed team of threads that runs one function at a time, each thread with its share of the work.
//
// The caller is thread 0. Between runs the others wait: awake for a short time (so that the many
// small operations of a step cost a microsecond each), then asleep (so that an idle rank burns no
// core). Leaves out: what is shared (ops/).

#include <cstdint>
#include <functional>
#include <memory>

namespace caravan {

/// Which part of an operation this thread does.
struct ThreadShare {
  int index = 0;
  int count = 1;
};

class ThreadTeam {
 public:
  /// @param num_threads  at least 1; 1 starts no thread and `run` is a plain call.
  /// @throws DeviceError if the system gives fewer threads.
  explicit ThreadTeam(int num_threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return size_; }

  /// Calls `work` once on every thread with its share and returns when all are done. `work` must
  /// not throw, and must not call `run` again. Not reentrant: one caller at a time.
  template <typename Work>
  void run(const Work& work) {
    if (size_ == 1) {
      work(ThreadShare{0, 1});
      return;
    }
    run_erased(
        [](const void* context, ThreadShare share) { (*static_cast<const Work*>(context))(share); },
        &work);
  }

 private:
  using Function = void (*)(const void* context, ThreadShare share);
  void run_erased(Function function, const void* context);
  void serve(int index);
  void stop();

  struct State;
  int size_;
  std::unique_ptr<State> state_;
};

}  // namespace caravan
