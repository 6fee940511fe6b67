#include "mpi_check.h"

#include <array>

#include "caravan/core/error.h"

namespace caravan::parallel {

void check_mpi(int code, const char* call, const char* file, int line) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  int rank = -1;
  MPI_Error_string(code, text.data(), &length);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  throw CommError(fmt::format("MPI failed on rank {}: {} [{}:{}: {}]", rank,
                              std::string(text.data(), static_cast<std::size_t>(length)), file,
                              line, call));
}

}  // namespace caravan::parallel
