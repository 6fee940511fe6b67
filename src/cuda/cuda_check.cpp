#include "cuda_check.h"

#include "caravan/core/error.h"

namespace caravan::cuda {

void check_cuda(cudaError_t code, const char* call, const char* file, int line) {
  if (code == cudaSuccess) return;
  throw DeviceError(fmt::format("{} failed with CUDA error {} ({}), {}:{}", call,
                                static_cast<int>(code), cudaGetErrorString(code), file, line));
}

}  // namespace caravan::cuda
