#pragma once
// The CUDA devices that this process sees, or why it can use none.
//
// Two implementations with the same symbols: src/cuda over the CUDA runtime (CARAVAN_WITH_CUDA=ON)
// and src/no_cuda; the build takes one folder or the other. No CUDA header crosses this one. Leaves
// out: choosing a device, and computing on it.

#include <cstdint>
#include <string>
#include <vector>

namespace caravan::cuda {

struct Device {
  int index = 0;  // among those that this process sees (CUDA_VISIBLE_DEVICES)
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  std::int64_t memory_bytes = 0;
  std::string pci_bus_id;  // "0000:1b:00.0": tells devices of a node apart
};

enum class Availability {
  kUsable,    // at least one device
  kNotBuilt,  // the program was built without CUDA
  kNoDriver,  // no NVIDIA driver on this machine
  kOldDriver,
  kNoDevice,
  kFailed,  // the runtime says something else
};

struct DeviceSurvey {
  Availability availability = Availability::kNotBuilt;
  std::string obstacle;         // what is the matter and what to do; empty if usable
  std::string toolkit_version;  // "13.0": headers of the build; empty if built without CUDA
  std::string runtime_version;  // of the library that was loaded; likewise
  std::string driver_version;   // the newest CUDA that the driver can run; empty without a driver
  std::vector<Device> devices;  // none unless usable
};

/// Looks once; says what it found instead of throwing. Creates no context and takes no memory of a
/// device. May take tenths of a second where a driver has to wake up.
DeviceSurvey survey_devices();

}  // namespace caravan::cuda
