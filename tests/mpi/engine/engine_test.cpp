// The engine on a group of ranks: the same answers, to the last bit, as on one.

#include <gtest/gtest.h>
#include <mpi.h>

#include "caravan/core/error.h"
#include "caravan/parallel/mpi_communicator.h"
#include "caravan/parallel/single_communicator.h"
#include "support/rank_groups.h"
#include "unit/engine/engine_rig.h"

namespace caravan::engine {
namespace {

using test::Answers;
using test::EngineSetup;

class GroupEngine : public testing::Test {
 protected:
  /// Runs on all ranks; the reference is made by rank 0 alone, on one rank.
  void expect_same_as_one_rank(const EngineSetup& setup) { expect_same_as_one_rank(setup, group_); }
  void expect_same_as_one_rank(const EngineSetup& setup, parallel::MpiCommunicator& group) {
    const std::vector<Request> requests = test::mixed_requests();
    const test::RunResult found = test::run_engine(group, source_, setup, requests);
    if (group.rank() != 0) return;
    parallel::SingleCommunicator single;
    test::expect_same_answers(found.answers,
                              test::run_alone(single, source_, EngineSetup{}, requests));
    if (setup.limits.kv_blocks < 10) {
      EXPECT_GT(found.statistics.put_backs, 0);
    }
  }

  parallel::MpiCommunicator group_;
  test::RandomWeightSource source_{test::uneven_config(), 42};
};

TEST_F(GroupEngine, EqualsOneRank) { expect_same_as_one_rank({}); }

TEST_F(GroupEngine, EqualsOneRankHoweverSumsTravel) {
  test::for_each_group(
      [this](parallel::MpiCommunicator& group) { expect_same_as_one_rank({}, group); });
}

TEST_F(GroupEngine, EqualsOneRankInSmallStepsWithPutBacks) {
  EngineSetup setup;
  setup.limits.max_step_tokens = 13;
  setup.limits.kv_blocks = 7;
  expect_same_as_one_rank(setup);
}

TEST_F(GroupEngine, EqualsOneRankWithSharedPrefixes) {
  const std::vector<Request> requests = test::alike_requests();
  Answers alone;
  if (group_.rank() == 0) {
    parallel::SingleCommunicator single;
    EngineSetup apart;
    apart.limits.prefix_sharing = false;
    alone = test::run_alone(single, source_, apart, requests);
  }
  for (const EngineLimits& limits : {EngineLimits{64, 512, 400}, {64, 24, 14}}) {
    SCOPED_TRACE("blocks " + std::to_string(limits.kv_blocks));
    EngineSetup setup;
    setup.limits = limits;
    const test::RunResult found = test::run_engine(group_, source_, setup, requests);
    if (group_.rank() != 0) continue;
    test::expect_same_answers(found.answers, alone);
    EXPECT_GT(found.statistics.reused_tokens, 48 * 5);
  }
}

TEST_F(GroupEngine, EqualsOneRankWithGuesses) {
  const std::vector<Request> requests = test::repetitive_requests();
  Answers alone;
  if (group_.rank() == 0) {
    parallel::SingleCommunicator single;
    EngineSetup plain;
    plain.limits.max_drafts = 0;
    alone = test::run_alone(single, source_, plain, requests);
  }
  EngineSetup setup;
  setup.limits.max_sequences = 2;
  const test::RunResult found = test::run_engine(group_, source_, setup, requests);
  if (group_.rank() != 0) return;
  test::expect_same_answers(found.answers, alone);
  EXPECT_GT(found.statistics.accepted_tokens, 100);
}

TEST_F(GroupEngine, EqualsOneRankWithAPaddedVocabulary) {
  EngineSetup setup;
  setup.tokenizer_size = 262;
  const std::vector<Request> requests = test::mixed_requests();
  const test::RunResult found = test::run_engine(group_, source_, setup, requests);
  if (group_.rank() != 0) return;
  parallel::SingleCommunicator single;
  test::expect_same_answers(found.answers, test::run_alone(single, source_, setup, requests));
}

TEST_F(GroupEngine, FollowersRefuseAPlanOutOfTurn) {
  ThreadTeam team(1);
  const ops::Context context(team, ops::detect_isa());
  model::Decoder decoder(test::uneven_config(), source_, context, group_, {8, 8});
  if (group_.rank() == 0) {
    model::StepPlan plan;
    plan.action = model::StepPlan::Action::kStop;
    plan.number = 5;
    std::vector<std::byte> bytes = plan.serialize();
    group_.broadcast(bytes);
  } else {
    EXPECT_THROW(Engine::follow(decoder, group_), InternalError);
  }
}

}  // namespace
}  // namespace caravan::engine
