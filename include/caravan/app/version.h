#pragma once
// What this program is and what it runs with, for --version, logs and manifests. Needs no MPI_Init.

#include <string>
#include <utility>
#include <vector>

namespace caravan::app {

/// "caravan 0.1.0 (1a2b3c4)".
std::string program_version();

/// The block that `caravan --version` prints.
std::string version_block();

/// The same as names and values.
std::vector<std::pair<std::string, std::string>> version_entries();

}  // namespace caravan::app
