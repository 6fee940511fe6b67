// Which blocks sequences share, over the scheduler's simulated cache: blocks of 4, steps of 16
// rows.

#include <gtest/gtest.h>

#include "scheduler_simulation.h"

namespace caravan::engine {
namespace {

using test::Simulation;
using test::small_limits;
using test::Spec;

/// A prompt whose first `shared` tokens are those of all others.
Spec prompt(std::int64_t shared, std::int64_t own, std::int64_t max_tokens = 1) {
  Spec spec;
  spec.prompt_size = shared + own;
  spec.shared = shared;
  spec.max_tokens = max_tokens;
  return spec;
}

std::int64_t reused(Simulation& simulation) {
  return simulation.scheduler().tables().num_reused_positions();
}

TEST(PrefixSharing, HappensInTheStepThatComputesThePrefix) {
  Simulation simulation(small_limits(32), {prompt(9, 2, 3), prompt(9, 3, 3)});
  simulation.submit_all();
  ASSERT_TRUE(simulation.step());
  const model::StepPlan& plan = simulation.last_plan();
  ASSERT_EQ(plan.segments.size(), 2U);
  EXPECT_EQ(plan.segments[1].position_begin, 8) << "two full blocks";
  EXPECT_EQ(plan.segments[1].row_count, 4);
  EXPECT_EQ(simulation.scheduler().blocks().num_used(), 3 + 1);
  simulation.run_to_end();
  simulation.expect_all_done();
}

TEST(PrefixSharing, WaitsForAPrefixLongerThanAStep) {
  Simulation simulation(small_limits(64), {prompt(40, 2), prompt(40, 2), prompt(40, 2)});
  simulation.submit_all();
  simulation.run_to_end();
  simulation.expect_all_done();
  EXPECT_EQ(simulation.num_rows(), 42 + 2 + 2);
  EXPECT_EQ(reused(simulation), 80);
}

TEST(PrefixSharing, FindsWhatAFinishedSequenceLeft) {
  Simulation simulation(small_limits(32), {prompt(9, 2), prompt(9, 3)});
  simulation.submit(0);
  simulation.run_to_end();
  EXPECT_EQ(simulation.scheduler().blocks().num_used(), 0);
  EXPECT_EQ(simulation.scheduler().blocks().num_cached(), 2);
  simulation.submit(1);
  ASSERT_TRUE(simulation.step());
  EXPECT_EQ(simulation.last_plan().positions.front(), 8);
  EXPECT_EQ(reused(simulation), 8);
}

TEST(PrefixSharing, ComputesTheLastPositionOfEveryPrompt) {
  Simulation simulation(small_limits(32), {prompt(8, 0), prompt(8, 0)});
  simulation.submit(0);
  simulation.run_to_end();
  simulation.submit(1);
  simulation.run_to_end();
  simulation.expect_all_done();
  EXPECT_EQ(simulation.num_rows(), 8 + 4) << "its block is computed again, the one before is not";
}

TEST(PrefixSharing, IsOffOnDemand) {
  SchedulerLimits limits = small_limits(32);
  limits.prefix_sharing = false;
  Simulation simulation(limits, {prompt(9, 2), prompt(9, 2, 2), {10, 4, 3}});
  simulation.submit_all();
  simulation.run_to_end();
  simulation.expect_all_done();
  EXPECT_EQ(simulation.num_rows(), 11 + 11 + 1 + 10 + 3 * 3);
  EXPECT_EQ(reused(simulation), 0);
  EXPECT_EQ(simulation.scheduler().blocks().num_cached(), 0);
}

TEST(PrefixSharing, TheBlockUnusedForLongestIsLostFirst) {
  // A pool of four; each text takes three blocks and leaves two to be found.
  Simulation simulation(small_limits(4), {prompt(8, 1), {9, 1}, {9, 1}, prompt(8, 1)});
  simulation.submit(0);
  simulation.run_to_end();
  simulation.submit(1);
  simulation.run_to_end();
  EXPECT_EQ(simulation.scheduler().blocks().num_cached(), 2 + 1) << "one of the first is lost";
  simulation.submit(2);
  simulation.run_to_end();
  EXPECT_EQ(simulation.scheduler().blocks().num_cached(), 2 + 1) << "one of the second is left";
  simulation.submit(3);
  simulation.run_to_end();
  EXPECT_EQ(reused(simulation), 0) << "of the first none";
  simulation.expect_all_done();
}

TEST(PrefixSharing, TheBeginningOfATextStaysLongest) {
  Simulation simulation(small_limits(5), {prompt(12, 1), {5, 1}, {5, 1}, prompt(12, 1)});
  for (std::size_t i = 0; i < 4; ++i) {
    simulation.submit(i);
    simulation.run_to_end();
  }
  simulation.expect_all_done();
  EXPECT_EQ(reused(simulation), 8) << "its third block was given to others";
}

TEST(PrefixSharing, BlocksInUseAreNotAskedForAtAdmission) {
  // 10 blocks: the first takes 8; the second needs 8 too, of which 7 are there, and one is spare.
  Simulation simulation(small_limits(10), {prompt(28, 1, 3), prompt(28, 2, 3)});
  simulation.submit_all();
  ASSERT_TRUE(simulation.step());
  ASSERT_TRUE(simulation.step());
  EXPECT_EQ(simulation.scheduler().num_running(), 2);
  EXPECT_EQ(simulation.scheduler().blocks().num_used(), 9);
  simulation.run_to_end();
  simulation.expect_all_done();
  EXPECT_EQ(simulation.scheduler().num_put_backs(), 0);
}

TEST(PrefixSharing, CachedBlocksAreAskedForAtAdmission) {
  // The second finds two cached blocks, which count as free until it has them: two free ones are
  // not enough for it and the first's next one.
  Simulation simulation(small_limits(5), {prompt(8, 1), {9, 4}, prompt(8, 1)});
  simulation.submit(0);
  simulation.run_to_end();
  simulation.submit(1);
  simulation.submit(2);
  ASSERT_TRUE(simulation.step());
  EXPECT_EQ(simulation.scheduler().blocks().num_free(), 2);
  EXPECT_EQ(simulation.scheduler().num_running(), 1);
  simulation.run_to_end();
  simulation.expect_all_done();
}

TEST(PrefixSharing, ASequenceThatWasPutBackFindsItsOwnBlocks) {
  // The second is put back with three blocks; the first ends with the one that it took.
  const std::vector<Spec> specs = {{4, 10}, {4, 16}};
  Simulation simulation(small_limits(6), specs);
  simulation.submit_all();
  simulation.run_to_end();
  simulation.expect_all_done();
  EXPECT_EQ(simulation.scheduler().num_put_backs(), 1);
  EXPECT_EQ(reused(simulation), 8) << "generated tokens too";
  SchedulerLimits limits = small_limits(6);
  limits.prefix_sharing = false;
  Simulation other(limits, specs);
  other.submit_all();
  other.run_to_end();
  EXPECT_EQ(other.num_rows() - simulation.num_rows(), 8);
}

TEST(PrefixSharing, RowsThatScoreAreComputed) {
  Spec scores = prompt(20, 1);
  scores.scores = true;
  Simulation simulation(small_limits(32), {prompt(20, 1), scores, prompt(20, 1)});
  for (std::size_t i = 0; i < 3; ++i) {
    simulation.submit(i);
    simulation.run_to_end();
  }
  simulation.expect_all_done();
  EXPECT_EQ(simulation.num_rows(), 21 + 21 + 1) << "the second scores every row";
}

TEST(PrefixSharing, RowsThatScoredOnceAreFoundAgain) {
  // Put back after its scores: only its last row is needed.
  Spec scores = prompt(8, 4, 8);
  scores.scores = true;
  Simulation simulation(small_limits(7), {{4, 20}, scores});
  simulation.submit_all();
  simulation.run_to_end();
  simulation.expect_all_done();
  EXPECT_GT(simulation.scheduler().num_put_backs(), 0);
  EXPECT_GT(reused(simulation), 0);
}

TEST(PrefixSharing, ChoicesStartFromAPrefixAndShareIt) {
  Spec choices = prompt(9, 2, 6);
  choices.num_choices = 3;
  Simulation simulation(small_limits(32), {prompt(9, 1), choices});
  simulation.submit(0);
  simulation.run_to_end();
  simulation.submit(1);
  ASSERT_TRUE(simulation.step());
  EXPECT_EQ(simulation.scheduler().blocks().num_used(), 3);
  ASSERT_TRUE(simulation.step());
  EXPECT_EQ(simulation.scheduler().blocks().num_used(), 5) << "two are shared by all";
  simulation.run_to_end();
  simulation.expect_all_done();
}

TEST(PrefixSharing, ARepeatedRowDoesNotTouchASharedBlock) {
  Simulation simulation(small_limits(8), {prompt(8, 0, 2), prompt(8, 1, 2)});
  Scheduler& scheduler = simulation.scheduler();
  simulation.submit_all();
  scheduler.plan();
  Sequence& sequence = simulation.sequence(0);
  const std::int32_t shared = sequence.blocks[1];
  ASSERT_EQ(scheduler.blocks().references(shared), 2);
  scheduler.repeat_last_row(sequence);
  scheduler.remove(simulation.sequence(1));
  simulation.submit(1);
  scheduler.plan();
  EXPECT_EQ(sequence.blocks[1], shared) << "the other one is gone";
  scheduler.repeat_last_row(sequence);
  const ScheduledStep& step = scheduler.plan();
  ASSERT_EQ(step.plan.block_copies.size(), 1U);
  EXPECT_EQ(step.plan.block_copies[0].source, shared);
  EXPECT_NE(sequence.blocks[1], shared);
}

}  // namespace
}  // namespace caravan::engine
