#pragma once
// The ways in which the ranks of a test can exchange partial sums: through memory that all share,
// by messages only, and as on several nodes (pretended, on this one machine).

#include <gtest/gtest.h>
#include <mpi.h>

#include <functional>
#include <string>

#include "caravan/parallel/mpi_communicator.h"

namespace caravan::test {

/// Calls `use` with a group of each kind, one after the other. Collective over all ranks.
inline void for_each_group(const std::function<void(parallel::MpiCommunicator& group)>& use) {
  using parallel::MpiCommunicator;
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const auto run = [&use](const std::string& name, MpiCommunicator&& group) {
    SCOPED_TRACE(name);
    use(group);
  };
  const auto best = MpiCommunicator::Exchange::kBest;
  run("shared memory", MpiCommunicator(best));
  run("messages", MpiCommunicator(MpiCommunicator::Exchange::kMpi));
  run("nodes of two ranks", MpiCommunicator(best, rank / 2));
  run("ranks dealt to two nodes in turn", MpiCommunicator(best, rank % 2));
  run("last rank on a node of its own", MpiCommunicator(best, rank == size - 1 ? 1 : 0));
  run("every rank on a node of its own", MpiCommunicator(best, rank));
}

}  // namespace caravan::test
