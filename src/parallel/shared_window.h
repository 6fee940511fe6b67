#pragma once
// Partial sums of the ranks of one node, exchanged through memory that all of them map.
//
// Two slots are used in turn, with a barrier of flags in each exchange: a rank that writes slot s
// again has seen every rank arrive at the exchange in between, so nobody still reads s.

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace caravan::parallel {

class SharedWindow {
 public:
  /// A window of two slots of `slot_floats`; null on every rank where the node lacks the memory.
  /// Collective. @pre all ranks of `comm` are on one node. `comm` is borrowed and outlives it.
  static std::unique_ptr<SharedWindow> make(MPI_Comm comm, std::int64_t slot_floats);

  /// Collective, but while an exception unwinds: peers may be elsewhere then, and the memory is
  /// left to the end of the process.
  ~SharedWindow();
  SharedWindow(const SharedWindow&) = delete;
  SharedWindow& operator=(const SharedWindow&) = delete;

  /// The slot for the next exchange: every rank writes its own part of it, then calls arrive().
  float* begin_exchange();

  /// Returns when all ranks have arrived: what they wrote before is seen, until the next
  /// begin_exchange but one. At least once in each exchange. Waits awake for a short time, then in
  /// naps, so that a rank that waits for a busy peer keeps no core from others.
  void arrive();

 private:
  struct alignas(64) Flag {
    std::atomic<std::uint64_t> phase;
  };

  SharedWindow(MPI_Win window, MPI_Comm comm, std::int64_t slot_floats);

  int uncaught_at_start_;
  int rank_ = 0;
  int size_ = 1;
  MPI_Win window_ = MPI_WIN_NULL;
  Flag* flags_ = nullptr;
  float* slots_ = nullptr;
  std::int64_t slot_floats_ = 0;
  std::uint64_t exchange_ = 0;  // begun by this rank
  std::uint64_t phase_ = 0;     // arrivals of this rank
};

}  // namespace caravan::parallel
