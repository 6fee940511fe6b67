#include "caravan/app/version.h"

#include <fmt/format.h>

#include "caravan/app/device_choice.h"
#include "caravan/batch/fingerprint.h"
#include "caravan/checkpoint/model_file.h"
#include "caravan/cuda/device.h"
#include "caravan/image/decoders.h"
#include "caravan/parallel/mpi_environment.h"
#include "revision.h"  // made by write_revision.cmake

namespace caravan::app {

std::string program_version() { return fmt::format("caravan {} ({})", CARAVAN_VERSION, kRevision); }

std::vector<std::pair<std::string, std::string>> version_entries() {
  return {
      {"program", program_version()},
      {"built", fmt::format("{}, {}", CARAVAN_COMPILER, CARAVAN_BUILD_TYPE)},
      {"MPI", fmt::format("header {}; runtime {}", parallel::mpi_header_version(),
                          parallel::mpi_library_version())},
      {"CUDA", describe_cuda(cuda::survey_devices())},
      {"LibTorch", CARAVAN_LIBTORCH_VERSION},
      {"HDF5", CARAVAN_HDF5_VERSION},
      {"images", image::decoder_versions()},
      {"checkpoint format", std::to_string(checkpoint::kFormatVersion)},
      {"numerics", std::to_string(batch::kNumericsVersion)},
  };
}

std::string version_block() {
  std::string block;
  for (const auto& [name, value] : version_entries()) {
    block += block.empty() ? value + "\n" : fmt::format("  {:<18}: {}\n", name, value);
  }
  return block;
}

}  // namespace caravan::app
