// The phases of a run. Every rank goes through the same collectives in the same order: what only
// the leader can judge is agreed upon before anybody goes on.

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "caravan/app/commands.h"
#include "caravan/app/memory_plan.h"
#include "caravan/app/prepared_run.h"
#include "caravan/app/stop_signals.h"
#include "caravan/core/clock.h"
#include "caravan/core/log.h"
#include "collective.h"
#include "group_command.h"
#include "leader_run.h"
#include "loaded_model.h"
#include "rank_group.h"

namespace caravan::app {
namespace {

batch::LockOwner lock_owner(const std::string& host, const Environment& environment) {
  return batch::this_process(host, environment("SLURM_JOB_ID").value_or(""),
                             environment_number(environment, "SLURM_RESTART_COUNT").value_or(0));
}

log::Level level_of(ExitCode code) {
  if (code == ExitCode::kOk) return log::Level::kInfo;
  const bool as_asked = code == ExitCode::kTemporary || code == ExitCode::kRecordErrors;
  return as_asked ? log::Level::kWarning : log::Level::kError;
}

// One run on this rank, from the launch to the exit code.
class Run {
 public:
  Run(const JobOptions& options, const parallel::MpiEnvironment& mpi,
      const Environment& environment)
      : options_(options),
        mpi_(mpi),
        environment_(environment),
        group_(options, mpi),
        communicator_(group_.communicator()) {
    facts_.started = utc_timestamp();
    facts_.configuration = effective_options(Command::kRun, options_);
  }

  ExitCode execute() {
    start();
    prepare();
    if (!broadcast_value(communicator_, needs_model())) return finish({}, nullptr);
    load();
    phase_ = "answering";
    if (!leads()) {
      engine::Engine::follow(model_->decoder(), communicator_);
      return finish({}, nullptr);
    }
    const ModelFront& model = prepared_->model();
    engine::Engine engine(model_->decoder(), communicator_, group_.context(), *model.tokenizer,
                          limits_);
    const Outcome outcome = options_.prompt
                                ? run_prompt(*prepared_, engine)
                                : run_records(options_, *prepared_, *output_, &engine, facts_);
    return finish(outcome, &engine);
  }

  /// Where this rank is and what it was doing, for the message of a fault that only it knows.
  std::string whereabouts() const { return fmt::format("{}, {}", group_.whereabouts(), phase_); }

  /// Ending the job takes memory, of which there may be none left. Not collective.
  void free_memory() { model_.reset(); }

 private:
  bool leads() const { return group_.leads(); }

  void start() {
    group_.start(mpi_, environment_);
    facts_.placement = group_.placement();
  }

  void prepare() {
    phase_ = "checking the job";
    const Stopwatch watch;
    const auto free_bytes = group_.free_bytes();
    agreed(communicator_, [&] {
      if (!leads()) return;
      prepared_.emplace(options_);
      prepared_->plan(free_bytes);
      if (options_.prompt) return;
      output_.emplace(
          *prepared_, lock_owner(group_.host(), environment_),
          options_.overwrite ? batch::ExistingOutput::kReplace : batch::ExistingOutput::kRefuse);
    });
    facts_.phase_seconds["prepare"] = watch.seconds();
  }

  // Whether anything is left to compute (leader).
  bool needs_model() const { return leads() && (options_.prompt || !output_->complete()); }

  void load() {
    phase_ = "loading the weights";
    limits_ = broadcast_value(communicator_, leads() ? prepared_->memory().limits : limits_);
    limits_.prefix_sharing = options_.prefix_sharing;
    if (options_.speculation) limits_.max_drafts = *options_.speculation;
    LoadOptions load;
    load.limits.max_step_tokens = limits_.max_step_tokens;
    load.limits.kv_blocks = limits_.kv_blocks;
    load.limits.kv_dtype = options_.kv_dtype;
    load.limits.image_blocks = limits_.image_blocks;
    load.verify = !options_.no_verify;
    load.keep_alive = [this] {
      if (output_) output_->keep_alive();
    };
    model_.emplace(group_, leads() ? &prepared_->model().file : nullptr, communicator_, load);
    facts_.phase_seconds["load"] = model_->seconds();
    if (!leads()) return;
    const auto total = static_cast<double>(model_->total_bytes_read());
    log::info(
        "weights: {} read by {} rank(s) in {:.2f} s ({}/s), this rank holds {}; KV cache {} "
        "tokens",
        format_bytes(total), communicator_.size(), model_->seconds(),
        format_bytes(total / std::max(model_->seconds(), 1e-6)),
        format_bytes(static_cast<double>(model_->decoder().weight_bytes())),
        prepared_->memory().kv_tokens());
    log::info("bytes read by each rank: {}", by_rank(model_->bytes_read()));
  }

  // What each rank held at most.
  void log_peak_memory() {
    const std::vector<std::int64_t> peaks = gather(communicator_, peak_memory_bytes());
    if (leads()) log::info("summary: peak memory bytes of each rank: {}", by_rank(peaks));
  }

  // Ends the followers and gives every rank the leader's code.
  ExitCode finish(Outcome outcome, engine::Engine* engine) {
    if (leads()) {
      if (engine != nullptr) {
        engine->stop();
      } else {
        outcome = run_records(options_, *prepared_, *output_, nullptr, facts_);
      }
    }
    log_peak_memory();
    if (leads()) {
      log::write(level_of(outcome.code),
                 fmt::format("{} (exit code {})", outcome.reason, static_cast<int>(outcome.code)));
    }
    return broadcast_value(communicator_, outcome.code);
  }

  JobOptions options_;
  const parallel::MpiEnvironment& mpi_;
  const Environment& environment_;
  RankGroup group_;
  parallel::Communicator& communicator_;
  RunFacts facts_;
  std::string_view phase_ = "starting";
  std::optional<PreparedRun> prepared_;  // leader
  std::optional<BatchOutput> output_;    // leader, with --input
  engine::EngineLimits limits_;
  std::optional<LoadedModel> model_;
};

}  // namespace

ExitCode run_command(const ParsedOptions& parsed, parallel::MpiEnvironment& mpi,
                     const Environment& environment) {
  return run_group_command<Run>(
      mpi, [&](std::optional<Run>& run) { run.emplace(parsed.options, mpi, environment); });
}

}  // namespace caravan::app
