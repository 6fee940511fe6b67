#include "caravan/parallel/mpi_environment.h"

#include <mpi.h>

#include <array>
#include <cstdlib>
#include <exception>

#include "caravan/core/error.h"
#include "caravan/core/log.h"
#include "mpi_check.h"

namespace caravan::parallel {

MpiEnvironment::MpiEnvironment(int& argc, char**& argv)
    : uncaught_at_start_(std::uncaught_exceptions()) {
  int provided = 0;
  CARAVAN_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided));
  CARAVAN_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  CARAVAN_MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
  CARAVAN_CHECK(provided >= MPI_THREAD_FUNNELED, CommError,
                "MPI grants thread level {}, MPI_THREAD_FUNNELED ({}) is needed", provided,
                static_cast<int>(MPI_THREAD_FUNNELED));
  CARAVAN_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank_));
  CARAVAN_MPI(MPI_Comm_size(MPI_COMM_WORLD, &world_size_));
}

MpiEnvironment::~MpiEnvironment() {
  if (std::uncaught_exceptions() > uncaught_at_start_ && world_size_ > 1) {
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(ExitCode::kInternal));
  }
  if (MPI_Finalize() != MPI_SUCCESS) log::warning("MPI_Finalize failed");
}

void MpiEnvironment::abort(int exit_code) {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);  // MPI_Abort is not declared noreturn
}

std::string mpi_library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "unknown";
  const std::string version(text.data(), static_cast<std::size_t>(length));
  return version.substr(0, version.find_first_of(",\n"));
}

std::string mpi_header_version() { return fmt::format("{}.{}", MPI_VERSION, MPI_SUBVERSION); }

}  // namespace caravan::parallel
