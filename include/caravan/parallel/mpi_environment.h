#pragma once
// MPI for the life of the program. Made first in `main`, destroyed last.
//
// Leaves out: communication (mpi_communicator.h), judging how the program was launched
// (launch_check.h).

#include <string>

namespace caravan::parallel {

class MpiEnvironment {
 public:
  /// MPI_Init_thread(FUNNELED): only the main thread calls MPI. Errors are returned, not fatal.
  /// @throws CommError if MPI refuses.
  MpiEnvironment(int& argc, char**& argv);

  /// Finalises; while an exception is unwinding it aborts the job instead, because peers may wait
  /// in a collective.
  ~MpiEnvironment();
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;

  int world_rank() const { return world_rank_; }
  int world_size() const { return world_size_; }

  /// Ends all ranks with this exit code. Does not return; callable from a rank whose peers are in a
  /// collective.
  [[noreturn]] void abort(int exit_code);

 private:
  int world_rank_ = 0;
  int world_size_ = 1;
  int uncaught_at_start_ = 0;
};

/// "Open MPI v4.1.4 ..." of the library in use; legal before MPI is initialised.
std::string mpi_library_version();

/// "3.1": the MPI standard of the header that the program was built with.
std::string mpi_header_version();

}  // namespace caravan::parallel
