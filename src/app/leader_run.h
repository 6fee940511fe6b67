#pragma once
// What the leader does between loading and the end of a run: drives the engine, completes the
// output, tells how it went.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "caravan/app/prepared_run.h"
#include "caravan/batch/driver.h"
#include "caravan/batch/journal.h"
#include "caravan/batch/output_files.h"
#include "caravan/core/clock.h"
#include "caravan/core/error.h"
#include "caravan/engine/engine.h"
#include "rank_group.h"

namespace caravan::app {

/// Facts about the launch that logs and manifest show.
struct RunFacts {
  Placement placement;
  std::string started;
  std::map<std::string, double> phase_seconds;
  std::vector<std::pair<std::string, std::string>> configuration;
};

/// Lock and journal of a batch run, held from before the weights are read to the end.
class BatchOutput {
 public:
  /// @throws as OutputLock, batch::check_output and Journal.
  BatchOutput(PreparedRun& prepared, const batch::LockOwner& owner, batch::ExistingOutput existing);
  batch::Journal& journal() { return journal_; }
  /// Shows that the lock has a living holder: call often, it does little more than look at a clock.
  /// @throws IoError if another job has taken the lock over.
  void keep_alive();
  /// Removes lock and journal of a complete output, in this order: with the journal the same
  /// command finishes what a kill between the two leaves.
  void remove();
  bool complete() const { return journal_.num_done() == journal_.num_records(); }

 private:
  batch::OutputLock lock_;
  batch::Journal journal_;
  Stopwatch since_refresh_;
};

/// How a run ended: the code for all ranks, and one sentence.
struct Outcome {
  ExitCode code = ExitCode::kOk;
  std::string reason;
};

/// Runs all open records. `engine` may be null when none is open. Afterwards the followers are
/// still in Engine::follow.
Outcome run_records(const JobOptions& options, PreparedRun& prepared, BatchOutput& output,
                    engine::Engine* engine, RunFacts& facts);

/// Answers --prompt on standard output.
Outcome run_prompt(PreparedRun& prepared, engine::Engine& engine);

}  // namespace caravan::app
