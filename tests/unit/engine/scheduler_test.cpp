#include "caravan/engine/scheduler.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "caravan/core/error.h"
#include "scheduler_simulation.h"

namespace caravan::engine {
namespace {

using test::Simulation;
using test::small_limits;
using test::Spec;

TEST(Scheduler, RunsDecodeRowsBeforePromptChunks) {
  Simulation simulation(small_limits(32), {{2, 5}, {40, 3}});
  simulation.submit(0);
  ASSERT_TRUE(simulation.step());
  simulation.submit(1);
  ASSERT_TRUE(simulation.step());
  const model::StepPlan& plan = simulation.last_plan();
  ASSERT_EQ(plan.segments.size(), 2U);
  EXPECT_EQ(plan.segments[0].row_count, 1);
  EXPECT_EQ(plan.segments[0].position_begin, 2);
  EXPECT_EQ(plan.segments[1].row_count, 15) << "the rest of the budget";
  simulation.run_to_end();
  simulation.expect_all_done();
}

TEST(Scheduler, AdmitsInOrderOfSubmission) {
  // The second does not fit beside the first; the third would, but must wait for its turn.
  Simulation simulation(small_limits(8), {{20, 2}, {16, 2}, {1, 2}});
  simulation.submit_all();
  ASSERT_TRUE(simulation.step());
  EXPECT_EQ(simulation.scheduler().num_running(), 1);
  EXPECT_EQ(simulation.sequence(2).state, Sequence::State::kWaiting);
  simulation.run_to_end();
  simulation.expect_all_done();
}

TEST(Scheduler, PutsTheYoungestBackWhenBlocksRunOut) {
  Simulation simulation(small_limits(6), {{4, 16}, {4, 16}});
  simulation.submit_all();
  while (simulation.scheduler().num_put_backs() == 0) ASSERT_TRUE(simulation.step());
  EXPECT_EQ(simulation.sequence(0).state, Sequence::State::kRunning);
  EXPECT_EQ(simulation.sequence(1).state, Sequence::State::kWaiting);
  EXPECT_GT(simulation.sequence(1).num_generated(), 0) << "its tokens are kept";
  EXPECT_TRUE(simulation.sequence(1).blocks.empty());
  simulation.run_to_end();
  simulation.expect_all_done();
}

TEST(Scheduler, SharesPromptBlocksBetweenChoicesAndCopiesThePartialOne) {
  Simulation simulation(small_limits(32), {{10, 4, 3}});
  simulation.submit_all();
  ASSERT_TRUE(simulation.step());
  EXPECT_EQ(simulation.scheduler().blocks().num_used(), 3) << "10 positions, whatever n is";
  ASSERT_TRUE(simulation.step());
  EXPECT_EQ(simulation.last_plan().block_copies.size(), 2U) << "the last owner keeps the original";
  EXPECT_EQ(simulation.scheduler().blocks().num_used(), 5);
  simulation.run_to_end();
  simulation.expect_all_done();
}

TEST(Scheduler, RunsMoreChoicesThanPlaces) {
  SchedulerLimits limits = small_limits(64);
  limits.max_sequences = 2;
  Simulation simulation(limits, {{5, 6, 5}, {7, 3}});
  simulation.submit_all();
  simulation.run_to_end();
  simulation.expect_all_done();
}

TEST(Scheduler, SpreadsPromptScoresOverSteps) {
  SchedulerLimits limits = small_limits(32);
  limits.max_step_tokens = 64;
  Simulation simulation(limits, {{22, 0, 1, true}});
  simulation.submit_all();
  simulation.run_to_end();
  simulation.expect_all_done();
  EXPECT_EQ(simulation.num_steps(), 5) << "21 scores, 5 a step";
}

TEST(Scheduler, RepeatsARowWithWholeLogits) {
  Simulation simulation(small_limits(8), {{3, 2}});
  Sequence& sequence = simulation.sequence(0);
  simulation.submit_all();
  Scheduler& scheduler = simulation.scheduler();
  EXPECT_EQ(scheduler.plan().argmax_uses.size(), 1U);
  scheduler.repeat_last_row(sequence);
  const ScheduledStep& step = scheduler.plan();
  EXPECT_EQ(step.plan.positions, std::vector<std::int32_t>{2});
  EXPECT_TRUE(step.argmax_uses.empty());
  ASSERT_EQ(step.logit_uses.size(), 1U);
  EXPECT_EQ(step.logit_uses[0].position, 2);
}

TEST(Scheduler, RemovesWaitingAndRunningSequences) {
  Simulation simulation(small_limits(8), {{20, 4}, {20, 4}});
  simulation.submit_all();
  ASSERT_TRUE(simulation.step());
  simulation.scheduler().remove(simulation.sequence(1));
  EXPECT_EQ(simulation.scheduler().num_waiting(), 0);
  simulation.scheduler().remove(simulation.sequence(0));
  EXPECT_EQ(simulation.scheduler().num_running(), 0);
  EXPECT_EQ(simulation.scheduler().blocks().num_used(), 0);
  EXPECT_TRUE(simulation.scheduler().plan().empty());
}

TEST(Scheduler, ThrowsWhenASequenceCanNeverFit) {
  Simulation simulation(small_limits(2), {{20, 4}});
  simulation.submit_all();
  EXPECT_THROW(simulation.step(), InternalError);
}

// Random requests over random limits, pools down to the smallest that holds the largest choice.
TEST(SchedulerProperty, EverythingEndsRightOverAnyPool) {
  std::int64_t put_backs = 0;
  std::int64_t reused = 0;
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t limit) {
      return static_cast<std::int64_t>(random() % limit);
    };
    std::vector<Spec> specs;
    std::int64_t largest = 1;
    for (std::int64_t i = 1 + below(12); i > 0; --i) {
      Spec spec;
      spec.prompt_size = 1 + below(30);
      spec.scores = below(3) == 0 && spec.prompt_size > 1;
      spec.max_tokens = spec.scores ? below(20) : 1 + below(20);
      spec.num_choices = spec.max_tokens == 0 ? 1 : 1 + below(4);
      spec.family = below(2);
      spec.shared = below(3) == 0 ? 0 : spec.prompt_size - below(spec.prompt_size + 1);
      specs.push_back(spec);
      largest = std::max(largest, spec.prompt_size + spec.max_tokens);
    }
    SchedulerLimits limits;
    limits.block_tokens = 1 + below(6);
    limits.max_sequences = 1 + below(6);
    limits.max_step_tokens = 1 + below(24);
    limits.max_scored_rows = 1 + below(8);
    limits.prefix_sharing = below(4) != 0;
    limits.max_drafts = below(8);
    limits.max_draft_rows = 2 + below(12);
    limits.num_tokens = 1000;
    limits.kv_blocks = (largest + limits.block_tokens - 1) / limits.block_tokens + below(12);
    const std::uint64_t num_tokens = std::array<std::uint64_t, 3>{1000, 2, 1}[random() % 3];
    Simulation simulation(limits, specs, num_tokens);
    std::size_t submitted = 0;
    while (submitted < specs.size()) {
      if (below(2) == 0) simulation.submit(submitted++);
      simulation.step();
    }
    simulation.run_to_end();
    simulation.expect_all_done();
    put_backs += simulation.scheduler().num_put_backs();
    reused += simulation.scheduler().tables().num_reused_positions();
    drafted += simulation.scheduler().num_drafted();
    accepted += simulation.scheduler().num_accepted();
    if (HasFailure()) return;
  }
  EXPECT_GT(put_backs, 100) << "the pools were meant to be too small";
  EXPECT_GT(reused, 1000) << "prompts were meant to begin alike";
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(drafted - accepted, 1000) << "some guesses were meant to be wrong";
}

}  // namespace
}  // namespace caravan::engine
