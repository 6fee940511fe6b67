#pragma once
// Partial sums of all ranks for all ranks: inside a node through memory that its ranks share,
// between nodes by messages of one rank of each, its leader.
//
// Leaves out: adding them up (tree_sum.h), groups in which nobody shares a node
// (mpi_communicator.cpp).

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "caravan/core/partition.h"
#include "caravan/parallel/communicator.h"
#include "comm_handle.h"
#include "shared_window.h"

namespace caravan::parallel {

class NodeExchange {
 public:
  /// Null on every rank where no two ranks share a node, or a node lacks the memory.
  ///
  /// Collective over `comm`, which is borrowed and outlives the result.
  /// @param node         if given, only ranks with the same number are taken to share a node.
  /// @param slot_floats  room for all partial sums of one exchange.
  static std::unique_ptr<NodeExchange> make(MPI_Comm comm, std::optional<int> node,
                                            std::int64_t slot_floats);

  /// Elements `tile` of the partial sums of all ranks, [tree nodes, tile], in rank order. Readable
  /// until the next exchange but one. Collective.
  ///
  /// @param partials  of this rank, [its tree nodes, count].
  const float* exchange(const SlicedSum& sum, const float* partials, std::int64_t count,
                        Range tile);

 private:
  NodeExchange() = default;
  void exchange_between_nodes(const SlicedSum& sum, float* slot, std::int64_t width);

  CommHandle node_comm_;
  CommHandle leaders_;  // rank in it: number of the node; null on ranks that do not lead
  std::unique_ptr<SharedWindow> window_;
  int rank_ = 0;  // in the whole group
  int node_ = 0;
  std::vector<std::vector<Range>> ranks_of_node_;  // runs of consecutive ranks
  std::vector<MPI_Request> requests_;
};

}  // namespace caravan::parallel
