#pragma once
// ANSWERS.manifest.json: what was run, where, with what, and how it ended. Everything about a run
// that is not an answer (times, hosts) is here and not in the output.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "caravan/batch/driver.h"
#include "caravan/batch/journal.h"
#include "caravan/batch/workload.h"
#include "caravan/engine/engine.h"

namespace caravan::batch {

struct Manifest {
  std::vector<std::pair<std::string, std::string>> versions;  // program, libraries
  std::vector<std::pair<std::string, std::string>> model;     // path, name, hash, dtype, source
  std::vector<std::pair<std::string, std::string>> configuration;  // every option in effect
  std::vector<std::string> ranks;                                  // where each sits
  std::string device;                                              // where it was computed, as text
  std::string kernels;                                             // instruction set
  std::string compute;                                             // operands of products
  std::string kv_dtype;                                            // of the cache
  int threads_per_rank = 1;
  std::vector<std::string> inputs;
  std::string output;
  Fingerprint fingerprint;
  WorkloadSummary workload;
  RunCounts counts;
  engine::EngineStatistics engine;
  std::int64_t kept_records = 0;   // of an earlier run
  std::int64_t done_records = 0;   // altogether
  std::int64_t error_records = 0;  // altogether
  std::map<std::string, double> phase_seconds;
  std::string started;  // UTC
  std::string ended;
  int exit_code = 0;
  std::string exit_reason;
};

std::string manifest_json(const Manifest& manifest);

}  // namespace caravan::batch
