#pragma once
// The frame of a subcommand that all ranks run: how a fault of one of them ends.

#include <fmt/format.h>

#include <optional>
#include <string>

#include "caravan/app/commands.h"
#include "caravan/parallel/mpi_environment.h"
#include "fault.h"

namespace caravan::app {

/// Makes a job and executes it. A fault that every rank knows of is thrown as AgreedError; any
/// other is reported by the rank that has it, which ends all ranks at once (one rank alone throws
/// it).
///
/// @param make  called with an empty std::optional<Job>, to emplace the job. Jobs have
///   ExitCode execute(), std::string whereabouts() const, and free_memory(): ending takes memory.
template <typename Job, typename Make>
ExitCode run_group_command(parallel::MpiEnvironment& mpi, const Make& make) {
  std::optional<Job> job;
  const auto whereabouts = [&job] { return job ? job->whereabouts() : std::string("starting"); };
  const TerminationReport termination(whereabouts, [&mpi](int code) {
    if (mpi.world_size() > 1) mpi.abort(code);
  });
  try {
    make(job);
    return job->execute();
  } catch (const AgreedError&) {
    job.reset();  // here, where all ranks do it: what is unwound must not wait for peers
    throw;
  } catch (...) {
    if (mpi.world_size() == 1) throw;
    // Peers may wait in a collective, and so would the end of the job.
    const Fault fault = current_fault();
    if (job) job->free_memory();
    report(fmt::format("{}: {}", whereabouts(), fault.message));
    mpi.abort(static_cast<int>(fault.code));
  }
}

}  // namespace caravan::app
