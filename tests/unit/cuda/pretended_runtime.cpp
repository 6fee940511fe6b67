#include "pretended_runtime.h"

#include <cuda_runtime_api.h>

#include <cstdio>

namespace caravan::cuda::test {

PretendedRuntime& pretended_runtime() {
  static PretendedRuntime runtime;
  return runtime;
}

namespace {

cudaError_t answer(int code) {
  if (code != 0) pretended_runtime().last_error = code;
  return static_cast<cudaError_t>(code);
}

const PretendedDevice& device_at(int index) {
  return pretended_runtime().devices.at(static_cast<std::size_t>(index));
}

}  // namespace
}  // namespace caravan::cuda::test

using caravan::cuda::test::answer;
using caravan::cuda::test::device_at;
using caravan::cuda::test::pretended_runtime;

extern "C" {

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = pretended_runtime().runtime_version;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = pretended_runtime().driver_version;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(pretended_runtime().devices.size());
  return answer(pretended_runtime().count_error);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  std::snprintf(properties->name, sizeof(properties->name), "%s", device_at(index).name.c_str());
  properties->totalGlobalMem = device_at(index).memory_bytes;
  return answer(pretended_runtime().properties_error);
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int index) {
  const auto& device = device_at(index);
  *value = which == cudaDevAttrComputeCapabilityMajor ? device.compute_major : device.compute_minor;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int index) {
  std::snprintf(text, static_cast<std::size_t>(length), "%s", device_at(index).pci_bus_id.c_str());
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const int code = pretended_runtime().last_error;
  pretended_runtime().last_error = 0;
  return static_cast<cudaError_t>(code);
}

const char* cudaGetErrorString(cudaError_t) { return "text of the runtime"; }

}  // extern "C"
