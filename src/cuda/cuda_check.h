#pragma once
// The one check of return codes of the CUDA runtime.

#include <cuda_runtime_api.h>

namespace caravan::cuda {

/// @throws DeviceError quoting the call and the runtime's own text.
void check_cuda(cudaError_t code, const char* call, const char* file, int line);

}  // namespace caravan::cuda

#define CARAVAN_CUDA(call) ::caravan::cuda::check_cuda((call), #call, __FILE__, __LINE__)
