#include "rank_group.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "caravan/app/device_choice.h"
#include "caravan/app/stop_signals.h"
#include "caravan/app/version.h"
#include "caravan/batch/record.h"
#include "caravan/core/log.h"
#include "caravan/core/machine_limits.h"
#include "caravan/cuda/device.h"
#include "caravan/parallel/mpi_communicator.h"
#include "collective.h"

namespace caravan::app {
namespace {

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

}  // namespace

std::optional<int> environment_number(const Environment& environment, const char* name) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  int number = 0;
  const auto [end, fault] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (fault != std::errc{} || end != text->data() + text->size()) return std::nullopt;
  return number;
}

std::string by_rank(const std::vector<std::int64_t>& values) {
  constexpr std::size_t kMostListed = 16;
  if (values.size() <= kMostListed) return fmt::format("{}", fmt::join(values, ", "));
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return fmt::format("{} to {}", *least, *most);
}

RankGroup::RankGroup(const JobOptions& options, const parallel::MpiEnvironment& mpi)
    : options_(options),
      communicator_(parallel::make_world_communicator(mpi.world_size(), options.exchange)) {}

std::string RankGroup::whereabouts() const {
  return fmt::format("rank {} of {} on {}", communicator_->rank(), communicator_->size(),
                     parallel::host_name());
}

std::vector<std::int64_t> RankGroup::free_bytes() {
  return gather(*communicator_,
                available_memory_bytes() / std::max(1, local_ranks_) + private_memory_bytes());
}

void RankGroup::start(const parallel::MpiEnvironment& mpi, const Environment& environment) {
  agreed(*communicator_, [&] {
    check_launched(mpi, environment);
    check_mesh(options_, mpi.world_size());
  });
  choose();
  place();
  forward_signals();
}

// Where to compute. One rank looks: nobody computes on what it finds yet.
void RankGroup::choose() {
  agreed(*communicator_, [&] {
    if (leads()) placement_.device = choose_device(options_.device, cuda::survey_devices);
  });
}

// More threads than CPUs only wait for each other, and change no answer.
int RankGroup::threads_on(const parallel::RankPlacement& own) {
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
void RankGroup::place() {
  const auto ranks = parallel::gather_placement();
  const auto& own = ranks[static_cast<std::size_t>(communicator_->rank())];
  host_ = own.host;
  local_ranks_ = own.local_size;
  placement_.threads = threads_on(own);
  const ops::Isa isa = options_.isa.value_or(ops::detect_isa(options_.compute));
  placement_.kernels = ops::isa_name(isa);
  for (const auto& rank : ranks) {
    placement_.ranks.push_back(fmt::format("{} (local rank {} of {}, {} CPUs)", rank.host,
                                           rank.local_rank, rank.local_size, rank.num_cpus));
  }
  if (leads()) {
    log::info("{} on {} rank(s): {}", program_version(), communicator_->size(),
              parallel::describe_placement(ranks));
    log::info("device: {}; {} thread(s) for each rank, {} kernels, {} computing", placement_.device,
              placement_.threads, placement_.kernels, ops::compute_name(options_.compute));
    for (const std::string& warning : parallel::placement_warnings(ranks, placement_.threads)) {
      log::warning("{}", warning);
    }
  }
  agreed(*communicator_, [&] {
    team_.emplace(placement_.threads);
    context_.emplace(*team_, isa, options_.compute);
  });
}

// A user may signal one rank only; on the leader's node it passes the wish on.
void RankGroup::forward_signals() {
  struct Leader {
    std::int64_t pid;
    std::uint64_t host;
  };
  const Leader own{::getpid(), batch::text_hash(host_)};
  const Leader leader = broadcast_value(*communicator_, own);
  if (!leads() && leader.host == own.host) forward_stop_signals(static_cast<int>(leader.pid));
}

}  // namespace caravan::app
