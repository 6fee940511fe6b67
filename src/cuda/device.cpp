#include "caravan/cuda/device.h"

#include <fmt/format.h>

#include <array>

#include "caravan/core/error.h"
#include "cuda_check.h"

namespace caravan::cuda {
namespace {

// 13000 is 13.0; 0 is none.
std::string version_text(int version) {
  if (version == 0) return {};
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

int attribute(int index, cudaDeviceAttr which) {
  int value = 0;
  CARAVAN_CUDA(cudaDeviceGetAttribute(&value, which, index));
  return value;
}

Device describe_device(int index) {
  cudaDeviceProp properties{};
  CARAVAN_CUDA(cudaGetDeviceProperties(&properties, index));
  std::array<char, 32> bus_id{};
  CARAVAN_CUDA(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), index));
  Device device;
  device.index = index;
  device.name = properties.name;
  device.compute_major = attribute(index, cudaDevAttrComputeCapabilityMajor);
  device.compute_minor = attribute(index, cudaDevAttrComputeCapabilityMinor);
  device.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  device.pci_bus_id = bus_id.data();
  return device;
}

void list_devices(DeviceSurvey& survey) {
  int runtime = 0;
  int driver = 0;
  CARAVAN_CUDA(cudaRuntimeGetVersion(&runtime));
  survey.runtime_version = version_text(runtime);
  CARAVAN_CUDA(cudaDriverGetVersion(&driver));
  survey.driver_version = version_text(driver);
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaErrorInsufficientDriver) {
    survey.availability = driver == 0 ? Availability::kNoDriver : Availability::kOldDriver;
    survey.obstacle =
        driver == 0 ? "there is no NVIDIA driver on this machine (libcuda.so.1 is not found): "
                      "start on a node with GPUs, in containers with the driver passed in"
                    : fmt::format(
                          "the NVIDIA driver is too old: it runs CUDA up to {}, this "
                          "program needs {}",
                          survey.driver_version, survey.runtime_version);
  } else if (code == cudaErrorNoDevice || (code == cudaSuccess && count == 0)) {
    survey.availability = Availability::kNoDevice;
    survey.obstacle =
        "the NVIDIA driver shows this process no device: ask the launcher for GPUs "
        "(--gpus-per-node), or look at CUDA_VISIBLE_DEVICES";
  } else {
    check_cuda(code, "cudaGetDeviceCount(&count)", __FILE__, __LINE__);
    for (int index = 0; index < count; ++index) survey.devices.push_back(describe_device(index));
    survey.availability = Availability::kUsable;
  }
}

}  // namespace

DeviceSurvey survey_devices() {
  DeviceSurvey survey;
  survey.toolkit_version = version_text(CUDART_VERSION);
  try {
    list_devices(survey);
  } catch (const DeviceError& error) {
    survey.availability = Availability::kFailed;
    survey.obstacle = fmt::format("CUDA does not work here: {}", error.what());
    survey.devices.clear();
  }
  cudaGetLastError();  // a refusal that was understood must not be reported to the next caller
  return survey;
}

}  // namespace caravan::cuda
