#include <gtest/gtest.h>

#include <map>
#include <string>

#include "caravan/app/commands.h"

namespace caravan::app {
namespace {

Environment environment_of(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(LauncherRank, IsThatOfALaunchOfSeveral) {
  EXPECT_EQ(launcher_rank(environment_of({})), 0);
  EXPECT_EQ(
      launcher_rank(environment_of({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "3"}})),
      2);
  EXPECT_EQ(launcher_rank(environment_of({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}})),
            1);
  EXPECT_EQ(launcher_rank(environment_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}})), 1);
}

TEST(LauncherRank, LeftoverVariablesMakeNoRankSilent) {
  EXPECT_EQ(launcher_rank(environment_of({{"SLURM_PROCID", "1"}})), 0);
  EXPECT_EQ(launcher_rank(environment_of({{"PMI_RANK", "5"}})), 0);
  EXPECT_EQ(
      launcher_rank(environment_of({{"OMPI_COMM_WORLD_RANK", "x"}, {"OMPI_COMM_WORLD_SIZE", "3"}})),
      0);
}

TEST(SurplusRank, OnlyOurOwnLauncherMakesOne) {
  EXPECT_EQ(surplus_rank(environment_of({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}})),
            std::nullopt);
  EXPECT_EQ(
      surplus_rank(environment_of({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "1"}})),
      std::nullopt);
  EXPECT_EQ(
      surplus_rank(environment_of({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}})),
      std::nullopt);
  EXPECT_EQ(
      surplus_rank(environment_of({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}})),
      1);
}

}  // namespace
}  // namespace caravan::app
