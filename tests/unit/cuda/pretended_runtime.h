#pragma once
// A CUDA runtime that answers as a test wants. The functions defined in pretended_runtime.cpp stand
// in the program and so before those of the library.

#include <string>
#include <vector>

namespace caravan::cuda::test {

struct PretendedDevice {
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  std::size_t memory_bytes = 0;
  std::string pci_bus_id;
};

struct PretendedRuntime {
  int runtime_version = 13000;
  int driver_version = 13000;
  int count_error = 0;       // of cudaGetDeviceCount, a cudaError_t
  int properties_error = 0;  // of cudaGetDeviceProperties
  std::vector<PretendedDevice> devices;
  int last_error = 0;  // what the next caller of cudaGetLastError gets
};

/// The one that the functions ask; a test sets it before it looks.
PretendedRuntime& pretended_runtime();

}  // namespace caravan::cuda::test
