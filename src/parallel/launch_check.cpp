#include "caravan/parallel/launch_check.h"

#include <fmt/format.h>
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "caravan/core/machine_limits.h"
#include "comm_handle.h"
#include "mpi_check.h"

namespace caravan::parallel {
namespace {

std::string mismatch(const char* launcher, int asked, int connected, const char* remedy) {
  return fmt::format(
      "{} started {} ranks, but only {} {} connected to this one: each would run the whole job by "
      "itself. {}",
      launcher, asked, connected, connected == 1 ? "is" : "are", remedy);
}

// What a rank tells its peers: plain bytes for one MPI_Allgather.
struct PlacementRecord {
  std::array<char, 64> host;
  std::int32_t local_rank;
  std::int32_t local_size;
  std::int32_t num_cpus;
  cpu_set_t mask;
};

cpu_set_t own_mask() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) CPU_SET(0, &mask);
  return mask;
}

std::array<char, 64> own_host() {
  std::array<char, 64> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host = {"unknown"};
  return host;
}

bool overlap(const cpu_set_t& a, const cpu_set_t& b) {
  cpu_set_t both;
  CPU_AND(&both, &a, &b);
  return CPU_COUNT(&both) > 0;
}

}  // namespace

std::string host_name() { return own_host().data(); }

LaunchVerdict check_launch(int world_size, const LauncherHints& hints) {
  LaunchVerdict verdict;
  if (hints.open_mpi_size) {  // inside Slurm, srun's own variables then describe mpirun's daemons
    if (*hints.open_mpi_size != world_size) {
      verdict.fault = mismatch("mpirun (Open MPI)", *hints.open_mpi_size, world_size,
                               "Start it with the mpirun of the MPI that caravan is linked to "
                               "(caravan --version).");
    }
    return verdict;
  }
  if (hints.pmi_size) {  // so here: mpiexec starts one daemon a node by srun
    if (*hints.pmi_size != world_size) {
      verdict.fault =
          mismatch("mpiexec (PMI)", *hints.pmi_size, world_size,
                   "This launcher belongs to another MPI than the one caravan is linked "
                   "to (caravan --version): use that one's mpirun.");
    }
    return verdict;
  }
  // More are connected than a step has tasks where components of a heterogeneous job share a world.
  if (hints.slurm_step_tasks && *hints.slurm_step_tasks > world_size) {
    verdict.fault =
        mismatch("srun", *hints.slurm_step_tasks, world_size,
                 "Add --mpi=pmix to srun (`srun --mpi=list` shows what this site has).");
    return verdict;
  }
  if (!hints.slurm_step_tasks && hints.slurm_job_tasks && *hints.slurm_job_tasks > world_size) {
    verdict.warnings.push_back(fmt::format(
        "this Slurm job has {} tasks, but caravan runs as {} rank(s): start it with `srun "
        "--mpi=pmix caravan ...` or `mpirun caravan ...` to use them all",
        *hints.slurm_job_tasks, world_size));
  }
  return verdict;
}

std::vector<RankPlacement> gather_placement() {
  PlacementRecord own{};
  own.host = own_host();
  own.mask = own_mask();
  own.num_cpus = usable_cpus();
  MPI_Comm sharing_memory = MPI_COMM_NULL;
  CARAVAN_MPI(
      MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &sharing_memory));
  const CommHandle node(sharing_memory);
  int local = 0;
  int world_size = 1;
  CARAVAN_MPI(MPI_Comm_rank(node.get(), &local));
  own.local_rank = local;
  CARAVAN_MPI(MPI_Comm_size(node.get(), &local));
  own.local_size = local;
  CARAVAN_MPI(MPI_Comm_size(MPI_COMM_WORLD, &world_size));
  std::vector<PlacementRecord> records(static_cast<std::size_t>(world_size));
  CARAVAN_MPI(MPI_Allgather(&own, sizeof(own), MPI_BYTE, records.data(), sizeof(own), MPI_BYTE,
                            MPI_COMM_WORLD));

  std::vector<RankPlacement> ranks;
  for (const PlacementRecord& record : records) {
    const auto sharing =
        std::count_if(records.begin(), records.end(), [&record](const PlacementRecord& other) {
          return std::strcmp(other.host.data(), record.host.data()) == 0 &&
                 overlap(other.mask, record.mask);
        });
    ranks.push_back({record.host.data(), record.local_rank, record.local_size, record.num_cpus,
                     std::max(1, static_cast<int>(sharing))});
  }
  return ranks;
}

std::string describe_placement(const std::vector<RankPlacement>& ranks) {
  std::string text;
  for (std::size_t begin = 0; begin < ranks.size();) {
    std::size_t end = begin + 1;
    while (end < ranks.size() && ranks[end].host == ranks[begin].host) ++end;
    if (!text.empty()) text += "; ";
    text += end - begin == 1 ? fmt::format("{}: rank {}", ranks[begin].host, begin)
                             : fmt::format("{}: ranks {}-{}", ranks[begin].host, begin, end - 1);
    text +=
        fmt::format(", {} CPU{}{}", ranks[begin].num_cpus, ranks[begin].num_cpus == 1 ? "" : "s",
                    ranks[begin].sharing > 1 ? fmt::format(" shared by {}", ranks[begin].sharing)
                                             : std::string());
    begin = end;
  }
  return text;
}

std::vector<std::string> placement_warnings(const std::vector<RankPlacement>& ranks,
                                            int threads_per_rank) {
  std::vector<std::string> warnings;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankPlacement& place = ranks[rank];
    if (place.sharing * threads_per_rank <= place.num_cpus) continue;
    warnings.push_back(
        place.sharing > 1
            ? fmt::format(
                  "{} ranks with {} thread(s) each share {} CPU(s) of {}: start fewer ranks "
                  "or lower --threads",
                  place.sharing, threads_per_rank, place.num_cpus, place.host)
            : fmt::format(
                  "rank {} on {} is bound to {} CPU(s) but has {} threads: lower --threads, "
                  "or bind wider (mpirun --bind-to none, srun --cpus-per-task={})",
                  rank, place.host, place.num_cpus, threads_per_rank, threads_per_rank));
    break;  // one such line says it; the others look alike
  }
  return warnings;
}

}  // namespace caravan::parallel
