#include "shared_window.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <new>

#include "caravan/core/log.h"
#include "mpi_check.h"

namespace caravan::parallel {
namespace {

constexpr std::int64_t kSmallestSlot = 64 * 1024;  // floats

// PAUSE rounds before giving the core away: a few microseconds, the usual difference between ranks.
constexpr int kSpinRounds = 2000;

}  // namespace

bool SharedWindow::possible(MPI_Comm comm) {
  MPI_Comm node = MPI_COMM_NULL;
  CARAVAN_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
  int sizes[2] = {0, 0};
  CARAVAN_MPI(MPI_Comm_size(node, &sizes[0]));
  CARAVAN_MPI(MPI_Comm_size(comm, &sizes[1]));
  CARAVAN_MPI(MPI_Comm_free(&node));
  int together = sizes[0] == sizes[1] ? 1 : 0;
  CARAVAN_MPI(MPI_Allreduce(MPI_IN_PLACE, &together, 1, MPI_INT, MPI_MIN, comm));
  return together == 1;
}

SharedWindow::SharedWindow(MPI_Comm comm) : comm_(comm) {
  CARAVAN_MPI(MPI_Comm_rank(comm_, &rank_));
  CARAVAN_MPI(MPI_Comm_size(comm_, &size_));
}

SharedWindow::~SharedWindow() { release(); }

void SharedWindow::release() noexcept {
  if (window_ == MPI_WIN_NULL) return;
  MPI_Win_unlock_all(window_);
  if (MPI_Win_free(&window_) != MPI_SUCCESS) log::warning("MPI_Win_free failed");
}

void SharedWindow::allocate(std::int64_t count) {
  release();
  capacity_ = std::max(count, kSmallestSlot);
  const auto flag_bytes = static_cast<MPI_Aint>(sizeof(Flag)) * size_;
  const auto slot_bytes =
      static_cast<MPI_Aint>(2 * capacity_) * static_cast<MPI_Aint>(sizeof(float));
  // All memory is rank 0's; alignment beyond a cache line is what the library gives.
  const MPI_Aint bytes = rank_ == 0 ? flag_bytes + slot_bytes + 64 : 0;
  void* own = nullptr;
  CARAVAN_MPI(MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, comm_, &own, &window_));
  MPI_Aint size = 0;
  int unit = 0;
  void* base = nullptr;
  CARAVAN_MPI(MPI_Win_shared_query(window_, 0, &size, &unit, &base));
  CARAVAN_MPI(MPI_Win_lock_all(MPI_MODE_NOCHECK, window_));
  // The mapping starts on a page in every rank, so aligning the offset aligns the address.
  const auto misalignment = reinterpret_cast<std::uintptr_t>(base) % 64;
  auto* memory = static_cast<std::byte*>(base) + (misalignment == 0 ? 0 : 64 - misalignment);
  flags_ = reinterpret_cast<Flag*>(memory);
  slots_ = reinterpret_cast<float*>(memory + flag_bytes);
  epoch_ = 0;
  new (&flags_[rank_]) Flag{};
  flags_[rank_].epoch.store(0, std::memory_order_release);
  CARAVAN_MPI(MPI_Barrier(comm_));
}

float* SharedWindow::begin_exchange(std::int64_t count) {
  if (window_ == MPI_WIN_NULL || count > capacity_) allocate(count);
  ++epoch_;
  return slots_ + (epoch_ % 2) * static_cast<std::uint64_t>(capacity_);
}

void SharedWindow::arrive() {
  flags_[rank_].epoch.store(epoch_, std::memory_order_release);
  for (int peer = 0; peer < size_; ++peer) {
    for (int round = 0; flags_[peer].epoch.load(std::memory_order_acquire) < epoch_; ++round) {
      if (round < kSpinRounds) {
        _mm_pause();
      } else {
        sched_yield();
      }
    }
  }
}

}  // namespace caravan::parallel
