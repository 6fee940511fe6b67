// When sequences get rows for guesses, and what becomes of them, over the scheduler's simulated
// cache. A "model" of one token makes every guess come true, one of two tokens every other one.

#include <gtest/gtest.h>

#include "scheduler_simulation.h"

namespace caravan::engine {
namespace {

using test::Simulation;
using test::small_limits;
using test::Spec;

SchedulerLimits guessing_limits(std::int64_t blocks) {
  SchedulerLimits limits = small_limits(blocks);
  limits.max_drafts = 7;
  limits.max_draft_rows = 8;
  limits.num_tokens = 1000;
  return limits;
}

std::size_t rows(const Simulation& simulation) { return simulation.last_plan().tokens.size(); }

TEST(Speculation, GivesALoneSequenceMoreRowsTheMoreComesTrue) {
  Simulation simulation(guessing_limits(32), {{8, 30}}, 1);
  simulation.submit_all();
  std::vector<std::size_t> sizes;
  while (simulation.step()) sizes.push_back(rows(simulation));
  EXPECT_EQ(sizes, (std::vector<std::size_t>{8, 3, 5, 8, 8, 5}))
      << "the prompt, then 29 tokens; no more than are asked for";
  EXPECT_EQ(simulation.last_plan().segments.size(), 1U);
  simulation.expect_all_done();
}

TEST(Speculation, RowsOfWrongGuessesAreWrittenAgain) {
  Simulation simulation(guessing_limits(64), {{12, 100}}, 2);
  simulation.submit_all();
  simulation.run_to_end();
  simulation.expect_all_done();
  EXPECT_GT(simulation.scheduler().num_accepted(), 10);
  EXPECT_GT(simulation.scheduler().num_drafted() - simulation.scheduler().num_accepted(), 10);
}

TEST(Speculation, IsForFewSequencesOnly) {
  SchedulerLimits limits = guessing_limits(64);
  for (const std::size_t sequences : {2U, 4U, 5U}) {
    SCOPED_TRACE(sequences);
    Simulation simulation(limits, std::vector<Spec>(sequences, Spec{3, 20}), 1);
    simulation.submit_all();
    std::size_t most = 0;
    while (simulation.step()) {
      if (simulation.num_steps() > 2) most = std::max(most, rows(simulation));
    }
    simulation.expect_all_done();
    EXPECT_EQ(most, sequences == 5 ? 5U : 8U);
  }
}

TEST(Speculation, WaitsWhilePromptsAreComputed) {
  Simulation simulation(guessing_limits(64), {{8, 30}, {40, 1}}, 1);
  simulation.submit(0);
  ASSERT_TRUE(simulation.step());
  simulation.submit(1);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(simulation.step());
    EXPECT_EQ(simulation.last_plan().segments.front().row_count, 1);
  }
  simulation.run_to_end();
  simulation.expect_all_done();
  EXPECT_GT(simulation.scheduler().num_accepted(), 10);
}

TEST(Speculation, GoesOnWhileTheNextOneCannotStart) {
  SchedulerLimits limits = guessing_limits(64);
  limits.max_sequences = 1;
  Simulation no_place(limits, {{8, 30}, {8, 30}}, 1);
  no_place.submit_all();
  no_place.run_to_end();
  no_place.expect_all_done();
  EXPECT_EQ(no_place.num_steps(), 6 + 6);
  Simulation no_blocks(guessing_limits(10), {{8, 30}, {30, 8}}, 2);
  no_blocks.submit_all();
  ASSERT_TRUE(no_blocks.step());
  ASSERT_EQ(no_blocks.scheduler().num_running(), 1);
  ASSERT_TRUE(no_blocks.step());
  EXPECT_GT(rows(no_blocks), 1U);
}

TEST(Speculation, TakesNoBlockThatAnotherNeeds) {
  // Guesses of the first would need a block at the same time as the second's next token.
  for (std::int64_t blocks = 6; blocks <= 10; ++blocks) {
    SCOPED_TRACE(blocks);
    const std::vector<Spec> specs = {{7, 12}, {7, 12}};
    SchedulerLimits limits = guessing_limits(blocks);
    Simulation guessing(limits, specs, 2);
    limits.max_drafts = 0;
    Simulation plain(limits, specs, 2);
    for (Simulation* simulation : {&guessing, &plain}) {
      simulation->submit_all();
      simulation->run_to_end();
      simulation->expect_all_done();
    }
    EXPECT_LE(guessing.scheduler().num_put_backs(), plain.scheduler().num_put_backs());
    EXPECT_GT(guessing.scheduler().num_drafted(), 0);
  }
}

TEST(Speculation, DoesWithTheBlocksThatItHasWhenNoneIsFree) {
  Simulation simulation(guessing_limits(5), {{8, 13}}, 1);
  simulation.submit_all();
  while (simulation.step()) {
    EXPECT_LE(simulation.last_plan().blocks.size(), 5U);
  }
  simulation.expect_all_done();
  EXPECT_EQ(simulation.num_steps(), 4) << "8 positions, then 3, 5 and 4 rows";
}

TEST(Speculation, AChoiceThatEndsTakesItsGuessesAlong) {
  Simulation simulation(guessing_limits(32), {{8, 30}}, 1);
  simulation.submit_all();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(simulation.step());
  Scheduler& scheduler = simulation.scheduler();
  const ScheduledStep& step = scheduler.plan();
  ASSERT_EQ(step.argmax_uses.size(), 8U);
  const auto uses = step.argmax_uses;
  EXPECT_TRUE(scheduler.confirm(uses[0]));
  scheduler.remove(simulation.sequence(0));
  EXPECT_FALSE(scheduler.confirm(uses[1]));
  EXPECT_EQ(scheduler.blocks().num_used(), 0);
}

TEST(Speculation, ARepeatedRowDropsTheGuessesBehindIt) {
  Simulation simulation(guessing_limits(32), {{8, 30}}, 1);
  simulation.submit_all();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(simulation.step());
  Scheduler& scheduler = simulation.scheduler();
  Sequence& sequence = simulation.sequence(0);
  const auto uses = scheduler.plan().argmax_uses;
  ASSERT_TRUE(scheduler.confirm(uses[0]));
  sequence.generated.push_back(0);
  ASSERT_TRUE(scheduler.confirm(uses[1]));
  scheduler.repeat_last_row(sequence);
  EXPECT_FALSE(scheduler.confirm(uses[2]));
  const ScheduledStep& step = scheduler.plan();
  EXPECT_EQ(step.plan.positions.front(), uses[1].position);
  EXPECT_TRUE(step.argmax_uses.empty()) << "whole logits from now on";
  EXPECT_EQ(step.logit_uses.front().position, uses[1].position);
}

}  // namespace
}  // namespace caravan::engine
