#pragma once
// The collectives that one tensor-parallel group needs. Two implementations: MPI for several ranks
// (mpi_communicator.h) and the identity for one (single_communicator.h); NCCL joins them for CUDA
// tensors.
//
// Every call is collective over the group: same order, same shapes (where not said otherwise) on
// every rank. Callers never ask whether size() > 1. Leaves out: starting MPI (mpi_environment.h).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "caravan/core/partition.h"

namespace caravan::parallel {

/// How a sum over slices is spread over the ranks of a group: computed once at load, the same on
/// every rank.
class SlicedSum {
 public:
  /// @param owned  slices of each rank in rank order: contiguous, disjoint, together all of them;
  /// may be empty.
  SlicedSum(std::int64_t num_slices, const std::vector<Range>& owned);

  /// Nodes of the tree that `rank` sums up by itself, in increasing order (may be none).
  const std::vector<SliceTree::Node>& nodes_of(int rank) const;
  /// Nodes of all ranks.
  std::int64_t num_nodes() const { return static_cast<std::int64_t>(all_nodes_.size()); }
  /// Position of the first node of `rank` among all nodes.
  std::int64_t first_node_of(int rank) const;
  /// Additions over positions of all nodes that end in position 0.
  const std::vector<SliceTree::Addition>& additions() const { return additions_; }
  int num_ranks() const { return static_cast<int>(nodes_.size()); }

 private:
  std::vector<std::vector<SliceTree::Node>> nodes_;
  std::vector<std::int64_t> first_;
  std::vector<SliceTree::Node> all_nodes_;
  std::vector<SliceTree::Addition> additions_;
};

/// Memory for exchanging partial sums, once per node (shared) or rank (by MPI); larger sums go in
/// tiles.
inline constexpr std::int64_t kExchangeBytes = std::int64_t{16} << 20;

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Finishes a row-parallel product: exchanges the partial sums of all ranks, adds them in the
  /// order of the tree and adds the result to `accumulator`. The same bits on every rank and for
  /// every number of ranks.
  ///
  /// Collective:  yes; `accumulator` has the same shape and content on every rank.
  /// @param sum          the plan, with num_ranks() == size().
  /// @param partials     [n, N, D] float32, contiguous; n = number of nodes of this rank (may be
  /// 0).
  /// @param accumulator  [N, D] float32, contiguous; receives accumulator + sum (one rounding after
  /// the tree's).
  /// @throws CommError if the library fails.
  virtual void add_sliced_sum(const SlicedSum& sum, const at::Tensor& partials,
                              at::Tensor& accumulator) = 0;

  /// Sums `x` in place, where at most one rank has a non-zero value for each element: exact for any
  /// number of ranks. (The vocabulary-parallel embedding.) `x` is float32, contiguous, same shape
  /// everywhere.
  virtual void sum_disjoint(at::Tensor& x) = 0;

  /// Gathers row pieces of different widths on rank 0: there `full` [n, W] receives, for each rank
  /// in order, its `local` [n, w_rank] at the columns after those of the ranks before it. `full` is
  /// ignored on other ranks.
  ///
  /// @param widths  w of each rank; sum = W.
  virtual void gather_columns(const at::Tensor& local, const std::vector<std::int64_t>& widths,
                              at::Tensor& full) = 0;

  /// Gathers `bytes` (same length on every rank) from all ranks, in rank order, on every rank.
  /// Waiting ranks sleep, they do not spin, after a short time.
  virtual std::vector<std::byte> all_gather(std::span<const std::byte> bytes) = 0;

  /// Sends `bytes` of rank 0 to all; the others' vector is resized. Waiting ranks sleep as in
  /// all_gather. For step plans and other control messages.
  virtual void broadcast(std::vector<std::byte>& bytes) = 0;

  /// Tells all other ranks that this one has failed and goes to the common verdict
  /// (agree_or_throw), without waiting for them. Not collective.
  virtual void alert() = 0;

  /// Whether another rank has called alert(): what has long to do looks now and then, leaves it
  /// unfinished and goes to the verdict too. Looks, never waits; says so once for each alert.
  virtual bool alerted() = 0;
};

/// Throws the same error on every rank if any rank brings one: rank-local validation followed by a
/// common verdict. Collective. `message` is empty where all is well; the lowest failing rank's text
/// (with its rank) is thrown. Other ranks than that one get its first 4 KiB.
/// @throws Error with `code` of that rank.
void agree_or_throw(Communicator& communicator, int code, const std::string& message);

}  // namespace caravan::parallel
