#pragma once
// Partial sums of the ranks of one node, exchanged through memory that all of them map.
//
// Two slots are used in turn, with one barrier of flags per exchange: a rank that writes slot s
// again has seen every rank arrive at the exchange in between, so nobody still reads s.

#include <mpi.h>

#include <atomic>
#include <cstdint>

namespace caravan::parallel {

class SharedWindow {
 public:
  /// Whether all ranks of `comm` are on one node. Collective.
  static bool possible(MPI_Comm comm);

  /// @param comm  borrowed; outlives the window. All ranks on one node.
  explicit SharedWindow(MPI_Comm comm);
  ~SharedWindow();
  SharedWindow(const SharedWindow&) = delete;
  SharedWindow& operator=(const SharedWindow&) = delete;

  /// The slot for the next exchange, at least `count` floats: every rank writes its own part of it,
  /// then calls arrive(). Collective: `count` is the same on every rank.
  float* begin_exchange(std::int64_t count);

  /// Returns when all ranks have arrived; then the whole slot may be read until the next
  /// begin_exchange but one. Waits awake for a short time, then yields its core.
  void arrive();

 private:
  struct alignas(64) Flag {
    std::atomic<std::uint64_t> epoch;
  };

  void allocate(std::int64_t count);
  void release() noexcept;

  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 1;
  MPI_Win window_ = MPI_WIN_NULL;
  Flag* flags_ = nullptr;
  float* slots_ = nullptr;
  std::int64_t capacity_ = 0;  // floats in one slot
  std::uint64_t epoch_ = 0;
};

}  // namespace caravan::parallel
