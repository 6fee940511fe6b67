#pragma once
// What `caravan bench` measured, and how it is shown.

#include <cstdint>
#include <string>
#include <vector>

#include "caravan/ops/peaks.h"
#include "rank_group.h"

namespace caravan::app {

/// Floating-point operations and bytes of memory that some work takes at least, over all ranks.
struct WorkAmount {
  double flop = 0;
  double bytes = 0;
};

struct SpeedFigures {
  std::string work;            // "prefill" or "decode"
  std::int64_t sequences = 0;  // at once
  std::int64_t positions = 0;  // of each prompt
  std::int64_t passes = 0;     // that were measured: steps, or prompts
  double seconds = 0;          // of one, the median
  double tokens_per_second = 0;
  WorkAmount amount;          // of one
  double exchange_share = 0;  // of the leader's time, in exchanges between ranks
  double leader_share = 0;    // of the time, in the leader's own work between two passes
};

struct BenchReport {
  std::string program;
  std::string model;
  std::string dtype;
  std::string compute;
  Placement placement;
  bool uses_tiles = false;  // products are measured against the peak of tiles
  ops::Peaks peaks;         // of all ranks together
  double load_seconds = 0;
  double load_bytes = 0;
  std::vector<SpeedFigures> speeds;
};

/// A table for people, with what its columns mean below.
std::string bench_table(const BenchReport& report);
/// One JSON object: seconds, bytes, and rates a second without prefixes.
std::string bench_json(const BenchReport& report);

}  // namespace caravan::app
