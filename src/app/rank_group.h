#pragma once
// The ranks that share one model, as one of them sees it: what a launch gives before anything is
// read. The leader is rank 0.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "caravan/app/commands.h"
#include "caravan/core/thread_team.h"
#include "caravan/ops/context.h"
#include "caravan/parallel/communicator.h"
#include "caravan/parallel/launch_check.h"
#include "caravan/parallel/mpi_environment.h"

namespace caravan::app {

/// Where the ranks compute, for logs and manifest.
struct Placement {
  std::vector<std::string> ranks;  // "node1 (local rank 0 of 2, 4 CPUs)"
  std::string device;
  std::string kernels;
  int threads = 1;  // of each rank
};

class RankGroup {
 public:
  /// All ranks of the launch. Collective.
  RankGroup(const JobOptions& options, const parallel::MpiEnvironment& mpi);

  /// Checks the launch, chooses device, threads and kernels, and lets stop signals reach the
  /// leader. Collective, once, before what follows.
  /// @throws AgreedError.
  void start(const parallel::MpiEnvironment& mpi, const Environment& environment);

  bool leads() const { return communicator_->rank() == 0; }
  parallel::Communicator& communicator() { return *communicator_; }
  /// @pre start(), as for all that follows.
  const ops::Context& context() const { return *context_; }
  const Placement& placement() const { return placement_; }
  const std::string& host() const { return host_; }
  int local_ranks() const { return local_ranks_; }

  /// What each rank may take, in rank order, on every rank: its share of what its node has free,
  /// and what the program holds already, which plans count too. Collective.
  std::vector<std::int64_t> free_bytes();

  /// "rank 1 of 4 on node7".
  std::string whereabouts() const;

 private:
  void choose();
  int threads_on(const parallel::RankPlacement& own);
  void place();
  void forward_signals();

  JobOptions options_;
  std::unique_ptr<parallel::Communicator> communicator_;
  Placement placement_;
  std::string host_;
  int local_ranks_ = 1;
  std::optional<ThreadTeam> team_;
  std::optional<ops::Context> context_;
};

/// A number that the launcher has put into the environment; nothing where it is no number.
std::optional<int> environment_number(const Environment& environment, const char* name);

/// "4096, 4128, 4096"; only the ends of the range where there are many.
std::string by_rank(const std::vector<std::int64_t>& values);

}  // namespace caravan::app
