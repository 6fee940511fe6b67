#pragma once
// Owner of a communicator that we made.

#include <mpi.h>

#include <exception>

#include "caravan/core/log.h"
#include "caravan/core/unique_handle.h"

namespace caravan::parallel {

struct CommTraits {
  using Handle = MPI_Comm;
  static Handle null() noexcept { return MPI_COMM_NULL; }
  static void release(Handle comm) noexcept {
    // Freeing is collective, and a rank that an exception takes out of the group comes alone.
    if (std::uncaught_exceptions() > 0) return;
    if (MPI_Comm_free(&comm) != MPI_SUCCESS) log::warning("MPI_Comm_free failed");
  }
};

using CommHandle = UniqueHandle<CommTraits>;

}  // namespace caravan::parallel
