#pragma once
// The one check of MPI return codes.

#include <mpi.h>

#include <string>

namespace caravan::parallel {

/// @throws CommError quoting the call and MPI's own text.
void check_mpi(int code, const char* call, const char* file, int line);

}  // namespace caravan::parallel

#define CARAVAN_MPI(call) ::caravan::parallel::check_mpi((call), #call, __FILE__, __LINE__)
