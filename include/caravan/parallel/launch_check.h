#pragma once
// Did the launcher start what the user asked for, and where do the ranks sit?
//
// Environment variables are read by `app` and handed in, so that every case can be tested. Leaves
// out: GPUs (cuda/).

#include <optional>
#include <string>
#include <vector>

namespace caravan::parallel {

/// What launchers say about the size of the job, where they say it.
struct LauncherHints {
  std::optional<int> open_mpi_size;     // OMPI_COMM_WORLD_SIZE: mpirun of Open MPI
  std::optional<int> pmi_size;          // PMI_SIZE: mpiexec of MPICH and its kin
  std::optional<int> slurm_step_tasks;  // SLURM_STEP_NUM_TASKS: srun
  std::optional<int> slurm_job_tasks;   // SLURM_NTASKS: the allocation
};

struct LaunchVerdict {
  std::optional<std::string> fault;  // the job is not what the launcher started: stop (exit 69)
  std::vector<std::string> warnings;
};

/// Compares the number of connected ranks with what the launcher says it started.
LaunchVerdict check_launch(int world_size, const LauncherHints& hints);

/// Name of the node that this process runs on.
std::string host_name();

/// Where this rank runs.
struct RankPlacement {
  std::string host;
  int local_rank = 0;  // among the ranks of its node
  int local_size = 1;
  int num_cpus = 1;  // that it may keep busy: its mask, at most the quota of its control groups
  int sharing = 1;   // ranks of the node whose masks overlap this one, itself included
  /// CPUs for each rank when the shared ones are divided evenly, at least 1.
  int fair_threads() const { return num_cpus / sharing > 1 ? num_cpus / sharing : 1; }
};

/// Of every rank, in rank order, on every rank. Collective over MPI_COMM_WORLD.
/// @throws CommError
std::vector<RankPlacement> gather_placement();

/// "node07: ranks 0-3, 8 CPUs each; node08: ..." for the log, and a warning where ranks outnumber
/// their CPUs.
std::string describe_placement(const std::vector<RankPlacement>& ranks);
std::vector<std::string> placement_warnings(const std::vector<RankPlacement>& ranks,
                                            int threads_per_rank);

}  // namespace caravan::parallel
