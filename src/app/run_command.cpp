// The phases of a run. Every rank goes through the same collectives in the same order: what only
// the leader can judge is agreed upon before anybody goes on.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "caravan/app/commands.h"
#include "caravan/app/device_choice.h"
#include "caravan/app/memory_plan.h"
#include "caravan/app/prepared_run.h"
#include "caravan/app/stop_signals.h"
#include "caravan/app/version.h"
#include "caravan/core/clock.h"
#include "caravan/core/log.h"
#include "caravan/core/machine_limits.h"
#include "caravan/core/thread_team.h"
#include "caravan/cuda/device.h"
#include "caravan/model/decoder.h"
#include "caravan/parallel/launch_check.h"
#include "caravan/parallel/mpi_communicator.h"
#include "fault.h"
#include "leader_run.h"

namespace caravan::app {
namespace {

// Runs `step` on this rank and then agrees with all others that nobody failed.
template <typename Step>
void agreed(parallel::Communicator& communicator, const Step& step) {
  Fault fault{ExitCode::kOk, {}};
  try {
    step();
  } catch (const PeerFailed&) {
    // No fault of this rank.
  } catch (...) {
    fault = current_fault();
    communicator.alert();
  }
  try {
    parallel::agree_or_throw(communicator, static_cast<int>(fault.code), fault.message);
  } catch (const CommError&) {
    throw;
  } catch (const Error& error) {
    while (communicator.alerted()) {
    }
    throw AgreedError(error.code(), error.what());
  }
}

template <typename Value>
std::vector<Value> gather(parallel::Communicator& communicator, const Value& value) {
  const auto bytes = communicator.all_gather(std::as_bytes(std::span(&value, 1)));
  std::vector<Value> values(static_cast<std::size_t>(communicator.size()));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// Value of rank 0 on every rank.
template <typename Value>
Value broadcast_value(parallel::Communicator& communicator, const Value& value) {
  std::vector<std::byte> bytes(sizeof(Value));
  std::memcpy(bytes.data(), &value, sizeof(Value));
  communicator.broadcast(bytes);
  Value received;
  std::memcpy(&received, bytes.data(), sizeof(Value));
  return received;
}

std::optional<int> environment_number(const Environment& environment, const char* name) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  int number = 0;
  const auto [end, fault] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (fault != std::errc{} || end != text->data() + text->size()) return std::nullopt;
  return number;
}

void check_launched(const parallel::MpiEnvironment& mpi, const Environment& environment) {
  parallel::LauncherHints hints;
  hints.open_mpi_size = environment_number(environment, "OMPI_COMM_WORLD_SIZE");
  hints.pmi_size = environment_number(environment, "PMI_SIZE");
  hints.slurm_step_tasks = environment_number(environment, "SLURM_STEP_NUM_TASKS");
  hints.slurm_job_tasks = environment_number(environment, "SLURM_NTASKS");
  const parallel::LaunchVerdict verdict = parallel::check_launch(mpi.world_size(), hints);
  if (verdict.fault) throw CommError(*verdict.fault);
  if (mpi.world_rank() != 0) return;
  for (const std::string& warning : verdict.warnings) log::warning("{}", warning);
}

void check_mesh(const JobOptions& options, int world_size) {
  CARAVAN_CHECK(!options.tensor_parallel || *options.tensor_parallel == world_size, UsageError,
                "--tensor-parallel {} with {} rank(s): all ranks share one model for now, so start "
                "{} rank(s), or leave the option out",
                *options.tensor_parallel, world_size, *options.tensor_parallel);
}

batch::LockOwner lock_owner(const std::string& host, const Environment& environment) {
  return batch::this_process(host, environment("SLURM_JOB_ID").value_or(""),
                             environment_number(environment, "SLURM_RESTART_COUNT").value_or(0));
}

// "4096, 4128, 4096"; only the ends of the range where there are many.
std::string by_rank(const std::vector<std::int64_t>& values) {
  constexpr std::size_t kMostListed = 16;
  if (values.size() <= kMostListed) return fmt::format("{}", fmt::join(values, ", "));
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return fmt::format("{} to {}", *least, *most);
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
        environment_(environment),
        communicator_(parallel::make_world_communicator(mpi.world_size(), options.exchange)) {
    facts_.started = utc_timestamp();
    facts_.configuration = effective_options(Command::kRun, options_);
  }

  ExitCode execute(const parallel::MpiEnvironment& mpi) {
    start(mpi);
    prepare();
    if (!broadcast_value(*communicator_, needs_model())) return finish({}, nullptr);
    load();
    phase_ = "answering";
    if (!leads()) {
      engine::Engine::follow(*decoder_, *communicator_);
      return finish({}, nullptr);
    }
    const ModelFront& model = prepared_->model();
    engine::Engine engine(*decoder_, *communicator_, *context_, *model.tokenizer, limits_);
    const Outcome outcome = options_.prompt
                                ? run_prompt(*prepared_, engine)
                                : run_records(options_, *prepared_, *output_, &engine, facts_);
    return finish(outcome, &engine);
  }

  /// Where this rank is and what it was doing, for the message of a fault that only it knows.
  std::string whereabouts() const {
    return fmt::format("rank {} of {} on {}, {}", communicator_->rank(), communicator_->size(),
                       parallel::host_name(), phase_);
  }

  /// Ending the job takes memory, of which there may be none left. Not collective.
  void free_memory() { decoder_.reset(); }

 private:
  bool leads() const { return communicator_->rank() == 0; }

  void start(const parallel::MpiEnvironment& mpi) {
    agreed(*communicator_, [&] {
      check_launched(mpi, environment_);
      check_mesh(options_, mpi.world_size());
    });
    choose();
    place();
    forward_signals();
  }

  // Where to compute. One rank looks: nobody computes on what it finds yet.
  void choose() {
    agreed(*communicator_, [&] {
      if (leads()) facts_.device = choose_device(options_.device, cuda::survey_devices);
    });
  }

  // More threads than CPUs only wait for each other, and change no answer.
  int threads_on(const parallel::RankPlacement& own) {
    if (!options_.threads) return own.fair_threads();
    if (*options_.threads > own.num_cpus) {
      if (leads()) {
        log::warning(
            "--threads {}: this rank may use {} CPU(s) and takes {} thread(s); for more bind wider "
            "(mpirun --bind-to none, srun --cpus-per-task={})",
            *options_.threads, own.num_cpus, own.num_cpus, *options_.threads);
      }
      options_.threads = own.num_cpus;
    }
    return static_cast<int>(*options_.threads);
  }

  // Where the ranks sit and how many threads each gets.
  void place() {
    const auto placement = parallel::gather_placement();
    const auto& own = placement[static_cast<std::size_t>(communicator_->rank())];
    host_ = own.host;
    local_ranks_ = own.local_size;
    facts_.threads = threads_on(own);
    const ops::Isa isa = options_.isa.value_or(ops::detect_isa(options_.compute));
    facts_.kernels = ops::isa_name(isa);
    for (const auto& rank : placement) {
      facts_.ranks.push_back(fmt::format("{} (local rank {} of {}, {} CPUs)", rank.host,
                                         rank.local_rank, rank.local_size, rank.num_cpus));
    }
    if (leads()) {
      log::info("{} on {} rank(s): {}", program_version(), communicator_->size(),
                parallel::describe_placement(placement));
      log::info("device: {}; {} thread(s) for each rank, {} kernels, {} computing", facts_.device,
                facts_.threads, facts_.kernels, ops::compute_name(options_.compute));
      for (const std::string& warning : parallel::placement_warnings(placement, facts_.threads)) {
        log::warning("{}", warning);
      }
    }
    agreed(*communicator_, [&] {
      team_.emplace(facts_.threads);
      context_.emplace(*team_, isa, options_.compute);
    });
  }

  // A user may signal one rank only; on the leader's node it passes the wish on.
  void forward_signals() {
    struct Leader {
      std::int64_t pid;
      std::uint64_t host;
    };
    const Leader own{::getpid(), batch::text_hash(host_)};
    const Leader leader = broadcast_value(*communicator_, own);
    if (!leads() && leader.host == own.host) forward_stop_signals(static_cast<int>(leader.pid));
  }

  void prepare() {
    phase_ = "checking the job";
    const Stopwatch watch;
    // What the program holds already is part of what it is planned to need.
    const auto free_bytes =
        gather(*communicator_,
               available_memory_bytes() / std::max(1, local_ranks_) + private_memory_bytes());
    agreed(*communicator_, [&] {
      if (!leads()) return;
      prepared_.emplace(options_);
      prepared_->plan(free_bytes);
      if (options_.prompt) return;
      output_.emplace(
          *prepared_, lock_owner(host_, environment_),
          options_.overwrite ? batch::ExistingOutput::kReplace : batch::ExistingOutput::kRefuse);
    });
    facts_.phase_seconds["prepare"] = watch.seconds();
  }

  // Whether anything is left to compute (leader).
  bool needs_model() const { return leads() && (options_.prompt || !output_->complete()); }

  void load() {
    phase_ = "loading the weights";
    const Stopwatch watch;
    std::vector<std::byte> bytes;
    if (leads()) bytes = prepared_->model().file.serialize();
    communicator_->broadcast(bytes);
    limits_ = broadcast_value(*communicator_, leads() ? prepared_->memory().limits : limits_);
    limits_.prefix_sharing = options_.prefix_sharing;
    if (options_.speculation) limits_.max_drafts = *options_.speculation;
    std::int64_t read_bytes = 0;
    agreed(*communicator_, [&] {
      file_.emplace(checkpoint::ModelFile::deserialize(bytes));
      file_->set_verify(!options_.no_verify);
      decoder_.emplace(file_->description().config, *file_, *context_, *communicator_,
                       model::DecoderLimits{limits_.max_step_tokens, limits_.kv_blocks,
                                            facts_.threads, limits_.image_blocks},
                       [this](std::int64_t) {
                         if (output_) output_->keep_alive();
                         check_loading();
                       });
      read_bytes = file_->bytes_read();
    });
    const std::vector<std::int64_t> read = gather(*communicator_, read_bytes);
    const std::int64_t total = std::accumulate(read.begin(), read.end(), std::int64_t{0});
    facts_.phase_seconds["load"] = watch.seconds();
    if (!leads()) return;
    log::info(
        "weights: {} read by {} rank(s) in {:.2f} s ({}/s), this rank holds {}; KV cache {} "
        "tokens",
        format_bytes(static_cast<double>(total)), communicator_->size(), watch.seconds(),
        format_bytes(static_cast<double>(total) / std::max(watch.seconds(), 1e-6)),
        format_bytes(static_cast<double>(decoder_->weight_bytes())),
        prepared_->memory().kv_tokens());
    log::info("bytes read by each rank: {}", by_rank(read));
  }

  // All ranks agree on the outcome of loading, so that one alone may give it up.
  void check_loading() {
    if (communicator_->alerted()) throw PeerFailed();
    if (stop_signal() == 0) return;
    throw Error(
        ExitCode::kTemporary,
        fmt::format("stopped by {} while loading the weights: nothing is lost; run the same "
                    "command again",
                    signal_name(stop_signal())));
  }

  // What each rank held at most.
  void log_peak_memory() {
    const std::vector<std::int64_t> peaks = gather(*communicator_, peak_memory_bytes());
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
    return broadcast_value(*communicator_, outcome.code);
  }

  JobOptions options_;
  const Environment& environment_;
  std::unique_ptr<parallel::Communicator> communicator_;
  RunFacts facts_;
  std::string_view phase_ = "starting";
  std::string host_;
  int local_ranks_ = 1;
  std::optional<ThreadTeam> team_;
  std::optional<ops::Context> context_;
  std::optional<PreparedRun> prepared_;  // leader
  std::optional<BatchOutput> output_;    // leader, with --input
  engine::EngineLimits limits_;
  std::optional<checkpoint::ModelFile> file_;
  std::optional<model::Decoder> decoder_;
};

}  // namespace

ExitCode run_command(const ParsedOptions& parsed, parallel::MpiEnvironment& mpi,
                     const Environment& environment) {
  std::optional<Run> run;
  const TerminationReport termination(
      [&run] { return run ? run->whereabouts() : std::string("starting"); },
      [&mpi](int code) {
        if (mpi.world_size() > 1) mpi.abort(code);
      });
  try {
    run.emplace(parsed.options, mpi, environment);
    return run->execute(mpi);
  } catch (const AgreedError&) {
    run.reset();  // here, where all ranks do it: what is unwound must not wait for peers
    throw;
  } catch (...) {
    if (mpi.world_size() == 1) throw;
    // Peers may wait in a collective, and so would the end of `run`.
    const Fault fault = current_fault();
    if (run) run->free_memory();
    report(fmt::format("{}: {}", run ? run->whereabouts() : "starting", fault.message));
    mpi.abort(static_cast<int>(fault.code));
  }
}

}  // namespace caravan::app
