// What subcommands share about the process: its standard output and its place in a launch.

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "caravan/app/commands.h"

namespace caravan::app {

int launcher_rank(const Environment& environment) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const auto text = environment(name);
    if (!text) continue;
    int rank = 0;
    const auto [end, fault] = std::from_chars(text->data(), text->data() + text->size(), rank);
    if (fault == std::errc{} && end == text->data() + text->size()) return rank;
  }
  return 0;
}

void print_result(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  CARAVAN_CHECK(written && std::fflush(stdout) == 0, IoError,
                "writing to standard output failed: {}", std::strerror(errno));
}

}  // namespace caravan::app
