#include <gtest/gtest.h>

#include "caravan/parallel/launch_check.h"

namespace caravan::parallel {
namespace {

TEST(LaunchCheck, AcceptsWhatTheLauncherStarted) {
  EXPECT_FALSE(check_launch(1, {}).fault);
  EXPECT_FALSE(check_launch(4, {.open_mpi_size = 4}).fault);
  EXPECT_FALSE(check_launch(4, {.pmi_size = 4}).fault);
  EXPECT_FALSE(check_launch(4, {.slurm_step_tasks = 4, .slurm_job_tasks = 8}).fault);
}

TEST(LaunchCheck, FindsRanksThatAreNotConnected) {
  const auto srun = check_launch(1, {.slurm_step_tasks = 4, .slurm_job_tasks = 4});
  ASSERT_TRUE(srun.fault);
  EXPECT_NE(srun.fault->find("--mpi=pmix"), std::string::npos);
  EXPECT_NE(srun.fault->find("4 ranks"), std::string::npos);
  EXPECT_TRUE(check_launch(1, {.pmi_size = 2}).fault);
  EXPECT_TRUE(check_launch(1, {.open_mpi_size = 2}).fault);
}

TEST(LaunchCheck, TrustsMpirunInsideSlurm) {
  // srun started mpirun's daemons, one per node: its step size says nothing about ranks.
  const auto verdict =
      check_launch(8, {.open_mpi_size = 8, .slurm_step_tasks = 2, .slurm_job_tasks = 8});
  EXPECT_FALSE(verdict.fault);
  EXPECT_TRUE(verdict.warnings.empty());
}

TEST(LaunchCheck, TrustsMpiexecInsideSlurm) {
  EXPECT_FALSE(check_launch(8, {.pmi_size = 8, .slurm_step_tasks = 2, .slurm_job_tasks = 8}).fault);
}

TEST(LaunchCheck, AcceptsAWorldOfSeveralComponents) {
  EXPECT_FALSE(check_launch(3, {.slurm_step_tasks = 2, .slurm_job_tasks = 2}).fault);
}

TEST(LaunchCheck, WarnsWhenAJobsTasksAreNotUsed) {
  const auto verdict = check_launch(1, {.slurm_job_tasks = 4});
  EXPECT_FALSE(verdict.fault);
  ASSERT_EQ(verdict.warnings.size(), 1U);
  EXPECT_NE(verdict.warnings[0].find("4 tasks"), std::string::npos);
}

TEST(Placement, SharesCpusFairlyAndNeverGivesZeroThreads) {
  EXPECT_EQ((RankPlacement{"a", 0, 2, 8, 2}.fair_threads()), 4);
  EXPECT_EQ((RankPlacement{"a", 0, 8, 2, 8}.fair_threads()), 1);
}

TEST(Placement, WarnsWhereThreadsOutnumberCpus) {
  EXPECT_TRUE(placement_warnings({{"a", 0, 1, 4, 1}}, 4).empty());
  const auto bound = placement_warnings({{"a", 0, 1, 1, 1}}, 2);
  ASSERT_EQ(bound.size(), 1U);
  EXPECT_NE(bound[0].find("--bind-to none"), std::string::npos);
  const auto crowded = placement_warnings({{"a", 0, 2, 1, 2}, {"a", 1, 2, 1, 2}}, 1);
  ASSERT_EQ(crowded.size(), 1U);
  EXPECT_NE(crowded[0].find("share 1 CPU"), std::string::npos);
}

TEST(Placement, DescribesNodesInRankOrder) {
  EXPECT_EQ(describe_placement({{"a", 0, 2, 4, 1}, {"a", 1, 2, 4, 1}, {"b", 0, 1, 8, 1}}),
            "a: ranks 0-1, 4 CPUs; b: rank 2, 8 CPUs");
}

}  // namespace
}  // namespace caravan::parallel
