#include "shared_window.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <new>
#include <thread>

#include "caravan/core/clock.h"
#include "caravan/core/log.h"
#include "mpi_check.h"

namespace caravan::parallel {
namespace {

// PAUSE rounds before giving the core away: a few microseconds, the usual difference between ranks.
constexpr int kSpinRounds = 2000;

// Awake time of a wait, after which naps begin: most exchanges are over within it, also where ranks
// have more work than others in a step of few rows.
constexpr double kAwakeSeconds = 2e-4;
// A nap's part of the time waited so far: what it adds to a wait stays small, however long that is.
constexpr double kNapShare = 0.125;
constexpr double kLongestNapSeconds = 1e-3;

constexpr std::size_t kCacheLine = 64;

void wait_for(const std::atomic<std::uint64_t>& phase, std::uint64_t wanted) {
  const auto reached = [&] { return phase.load(std::memory_order_acquire) >= wanted; };
  for (int round = 0; round < kSpinRounds; ++round) {
    if (reached()) return;
    _mm_pause();
  }
  const Stopwatch watch;
  while (!reached()) {
    const double waited = watch.seconds();
    if (waited < kAwakeSeconds) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(
          std::chrono::duration<double>(std::min(kNapShare * waited, kLongestNapSeconds)));
    }
  }
}

}  // namespace

std::unique_ptr<SharedWindow> SharedWindow::make(MPI_Comm comm, std::int64_t slot_floats) {
  int rank = 0;
  int size = 1;
  CARAVAN_MPI(MPI_Comm_rank(comm, &rank));
  CARAVAN_MPI(MPI_Comm_size(comm, &size));
  // All memory is rank 0's: flags, two slots, and room to start them on a cache line.
  const std::size_t bytes = static_cast<std::size_t>(size) * sizeof(Flag) +
                            2 * static_cast<std::size_t>(slot_floats) * sizeof(float) + kCacheLine;
  void* own = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  const int code = MPI_Win_allocate_shared(rank == 0 ? static_cast<MPI_Aint>(bytes) : 0, 1,
                                           MPI_INFO_NULL, comm, static_cast<void*>(&own), &window);
  int made = code == MPI_SUCCESS ? 1 : 0;
  CARAVAN_MPI(MPI_Allreduce(MPI_IN_PLACE, &made, 1, MPI_INT, MPI_MIN, comm));
  if (made == 0) {
    if (rank == 0) {
      log::warning(
          "no {} bytes of shared memory on this node (is /dev/shm full?): partial sums go "
          "through MPI messages, which is slower",
          bytes);
    }
    return nullptr;
  }
  return std::unique_ptr<SharedWindow>(new SharedWindow(window, comm, slot_floats));
}

SharedWindow::SharedWindow(MPI_Win window, MPI_Comm comm, std::int64_t slot_floats)
    : uncaught_at_start_(std::uncaught_exceptions()), window_(window), slot_floats_(slot_floats) {
  CARAVAN_MPI(MPI_Comm_rank(comm, &rank_));
  CARAVAN_MPI(MPI_Comm_size(comm, &size_));
  MPI_Aint size = 0;
  int unit = 0;
  void* base = nullptr;
  CARAVAN_MPI(MPI_Win_shared_query(window_, 0, &size, &unit, static_cast<void*>(&base)));
  CARAVAN_MPI(MPI_Win_lock_all(MPI_MODE_NOCHECK, window_));
  // The mapping starts on a page in every rank, so aligning the offset aligns the address.
  const std::size_t misalignment = reinterpret_cast<std::uintptr_t>(base) % kCacheLine;
  auto* memory =
      static_cast<std::byte*>(base) + (misalignment == 0 ? 0 : kCacheLine - misalignment);
  flags_ = reinterpret_cast<Flag*>(memory);
  slots_ = reinterpret_cast<float*>(memory + static_cast<std::size_t>(size_) * sizeof(Flag));
  new (&flags_[rank_]) Flag{};
  flags_[rank_].phase.store(0, std::memory_order_release);
  CARAVAN_MPI(MPI_Barrier(comm));
}

SharedWindow::~SharedWindow() {
  if (std::uncaught_exceptions() > uncaught_at_start_) return;
  MPI_Win_unlock_all(window_);
  if (MPI_Win_free(&window_) != MPI_SUCCESS) log::warning("MPI_Win_free failed");
}

float* SharedWindow::begin_exchange() {
  ++exchange_;
  return slots_ + (exchange_ % 2) * static_cast<std::uint64_t>(slot_floats_);
}

void SharedWindow::arrive() {
  ++phase_;
  flags_[rank_].phase.store(phase_, std::memory_order_release);
  for (int peer = 0; peer < size_; ++peer) wait_for(flags_[peer].phase, phase_);
}

}  // namespace caravan::parallel
