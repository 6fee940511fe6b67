#include "caravan/core/thread_team.h"

#include <immintrin.h>

#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

#include "caravan/core/error.h"
#include "caravan/core/standard_floats.h"

namespace caravan {
namespace {

// About 50 us of PAUSE before sleeping: longer than the serial gaps between the operations of a
// step.
constexpr int kSpinRounds = 1500;

// Waits until `value` differs from `seen`.
std::uint32_t await_change(const std::atomic<std::uint32_t>& value, std::uint32_t seen) {
  for (int round = 0; round < kSpinRounds; ++round) {
    const std::uint32_t now = value.load(std::memory_order_acquire);
    if (now != seen) return now;
    _mm_pause();
  }
  value.wait(seen, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace

struct ThreadTeam::State {
  alignas(64) std::atomic<std::uint32_t> generation{0};  // bumped to start a run
  alignas(64) std::atomic<std::uint32_t> running{0};     // helpers that are still busy
  Function function = nullptr;
  const void* context = nullptr;
  bool stopping = false;
  std::vector<std::thread> threads;
};

ThreadTeam::ThreadTeam(int num_threads) : size_(num_threads), state_(std::make_unique<State>()) {
  CARAVAN_CHECK(num_threads >= 1, ConfigError, "threads must be at least 1, found {}", num_threads);
  try {
    for (int index = 1; index < num_threads; ++index) {
      state_->threads.emplace_back([this, index] { serve(index); });
    }
  } catch (const std::system_error& error) {
    const std::size_t started = state_->threads.size() + 1;
    stop();
    throw DeviceError(fmt::format(
        "cannot start {} threads, only {}: {} (lower --threads, or raise the limit: ulimit -u)",
        num_threads, started, error.what()));
  }
}

void ThreadTeam::serve(int index) {
  const StandardFloats floats;  // not those of the thread that made the team
  std::uint32_t seen = 0;
  while (true) {
    seen = await_change(state_->generation, seen);
    if (state_->stopping) return;
    state_->function(state_->context, ThreadShare{index, size_});
    if (state_->running.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      state_->running.notify_one();
    }
  }
}

void ThreadTeam::stop() {
  state_->stopping = true;
  state_->generation.fetch_add(1, std::memory_order_release);
  state_->generation.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

ThreadTeam::~ThreadTeam() { stop(); }

void ThreadTeam::run_erased(Function function, const void* context) {
  state_->function = function;
  state_->context = context;
  state_->running.store(static_cast<std::uint32_t>(size_ - 1), std::memory_order_relaxed);
  state_->generation.fetch_add(1, std::memory_order_release);
  state_->generation.notify_all();
  function(context, ThreadShare{0, size_});
  for (std::uint32_t left = state_->running.load(std::memory_order_acquire); left != 0;) {
    left = await_change(state_->running, left);
  }
}

}  // namespace caravan
