#pragma once
// Requests run by a scheduler over a cache that remembers what was written to it, for tests of who
// runs and of who shares which blocks.

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "caravan/engine/scheduler.h"

namespace caravan::test {

using engine::Request;
using engine::ScheduledStep;
using engine::Scheduler;
using engine::SchedulerLimits;
using engine::Sequence;

constexpr std::uint64_t kNoPrefix = 0xcbf29ce484222325ULL;

/// Stands for the cache content of one position: says which tokens led to it.
inline std::uint64_t extend(std::uint64_t prefix, std::int32_t token) {
  std::uint64_t x = (prefix ^ static_cast<std::uint64_t>(token)) * 0x100000001b3ULL;
  return x ^ (x >> 29);
}

struct Spec {
  std::int64_t prompt_size = 1;
  std::int64_t max_tokens = 1;
  std::int64_t num_choices = 1;
  bool scores = false;
  std::int64_t family = 0;  // whose first tokens the prompt begins with
  std::int64_t shared = 0;  // so many of them
};

/// Requests run by a scheduler over a cache that remembers, for each slot, the tokens that led to
/// it. Each step is checked: every position a row looks back at must be there and be right.
class Simulation {
 public:
  /// @param num_tokens  that the "model" knows: with few of them, guesses often come true
  Simulation(const SchedulerLimits& limits, const std::vector<Spec>& specs,
             std::uint64_t num_tokens = 1000)
      : limits_(limits), num_tokens_(num_tokens), scheduler_(limits) {
    cache_.assign(static_cast<std::size_t>(limits.kv_blocks * limits.block_tokens), 0);
    for (const Spec& spec : specs) add(spec);
  }

  void submit_all() {
    for (auto& job : jobs_) scheduler_.submit(*job->sequences.front());
  }
  void submit(std::size_t index) { scheduler_.submit(*jobs_[index]->sequences.front()); }

  /// Runs one step; false if there was nothing to do.
  bool step() {
    ScheduledStep& step = scheduler_.plan();
    if (step.empty()) return false;
    ++num_steps_;
    check_limits(step);
    write_cache(step.plan);
    for (const auto& use : step.logit_uses) take(use);
    for (const auto& use : step.argmax_uses) take(use);
    check_references();
    check_order();
    return true;
  }

  void run_to_end() {
    while (step()) {
      ASSERT_LT(num_steps_, 200000) << "no progress";
    }
  }

  void expect_all_done() const {
    for (const auto& job : jobs_) {
      for (const auto& sequence : job->sequences) {
        EXPECT_EQ(sequence->state, Sequence::State::kIdle);
        EXPECT_EQ(sequence->num_generated(), job->request.sampling.max_tokens);
        EXPECT_EQ(sequence->generated, expected_tokens(*job, sequence->choice));
      }
      if (job->request.sampling.prompt_logprobs) {
        const auto size = static_cast<std::int64_t>(job->request.prompt.size());
        for (std::int64_t position = 0; position + 1 < size; ++position) {
          EXPECT_EQ(job->times_scored[position], 1) << "position " << position;
        }
      } else {
        EXPECT_TRUE(job->times_scored.empty());
      }
    }
    EXPECT_EQ(scheduler_.blocks().num_used(), 0);
    EXPECT_EQ(scheduler_.num_running(), 0);
    EXPECT_EQ(scheduler_.num_waiting(), 0);
  }

  Scheduler& scheduler() { return scheduler_; }
  Sequence& sequence(std::size_t job, std::size_t choice = 0) {
    return *jobs_[job]->sequences[choice];
  }
  const model::StepPlan& last_plan() const { return last_plan_; }
  std::int64_t num_steps() const { return num_steps_; }
  std::int64_t num_rows() const { return num_rows_; }

 private:
  struct Job {
    Request request;
    std::vector<std::unique_ptr<Sequence>> sequences;
    std::map<std::int64_t, int> times_scored;
  };

  void add(const Spec& spec) {
    auto job = std::make_unique<Job>();
    job->request.sampling.max_tokens = spec.max_tokens;
    job->request.sampling.num_choices = spec.num_choices;
    job->request.sampling.prompt_logprobs = spec.scores;
    job->request.sampling.temperature = jobs_.size() % 2 == 0 ? 0.0 : 1.0;
    for (std::int64_t i = 0; i < spec.prompt_size; ++i) {
      const auto own = token(random_());
      const auto of_family = token(static_cast<std::uint64_t>(7 * i + 31 * spec.family));
      job->request.prompt.push_back(i < spec.shared ? of_family : own);
    }
    for (std::int64_t choice = 0; choice < spec.num_choices; ++choice) {
      auto sequence = std::make_unique<Sequence>();
      sequence->request = &job->request;
      sequence->serial = std::ssize(jobs_);
      sequence->choice = choice;
      job->sequences.push_back(std::move(sequence));
    }
    job->sequences.front()->scored = spec.scores ? 1 : 0;
    if (spec.max_tokens > 0) job->sequences.front()->pending_forks = spec.num_choices - 1;
    jobs_.push_back(std::move(job));
  }

  std::int32_t token(std::uint64_t number) const {
    return static_cast<std::int32_t>(number % num_tokens_);
  }

  /// The "model": a token that depends on everything before it and on the choice.
  std::int32_t next_token(std::uint64_t prefix, std::int64_t choice) const {
    return token((prefix >> 7) + static_cast<std::uint64_t>(choice) * 77);
  }

  std::vector<std::int32_t> expected_tokens(const Job& job, std::int64_t choice) const {
    std::uint64_t prefix = kNoPrefix;
    for (const std::int32_t token : job.request.prompt) prefix = extend(prefix, token);
    std::vector<std::int32_t> tokens;
    for (std::int64_t i = 0; i < job.request.sampling.max_tokens; ++i) {
      tokens.push_back(next_token(prefix, choice));
      prefix = extend(prefix, tokens.back());
    }
    return tokens;
  }

  void check_limits(const ScheduledStep& step) {
    const model::StepPlan& plan = step.plan;
    last_plan_ = plan;
    num_rows_ += std::ssize(plan.tokens);
    ASSERT_LE(std::ssize(plan.tokens), limits_.max_step_tokens);
    ASSERT_EQ(plan.tokens.size(), plan.positions.size());
    ASSERT_EQ(plan.argmax_rows.size(), step.argmax_uses.size());
    ASSERT_EQ(plan.logit_rows.size(), step.logit_uses.size());
    ASSERT_LE(scheduler_.num_running(), limits_.max_sequences);
    std::int64_t scored = 0;
    for (const auto& use : step.logit_uses) scored += use.scores_prompt() ? 1 : 0;
    ASSERT_LE(scored, limits_.max_scored_rows);
    std::int32_t row = 0;
    for (const auto& segment : plan.segments) {
      ASSERT_EQ(segment.row_begin, row);
      row += segment.row_count;
    }
    ASSERT_EQ(row, std::ssize(plan.tokens));
    for (const auto& job : jobs_) {
      for (const auto& sequence : job->sequences) {
        ASSERT_LE(std::ssize(sequence->blocks),
                  scheduler_.tables().blocks_for(sequence->known() + std::ssize(sequence->drafts)))
            << "blocks that nothing is written to";
      }
    }
  }

  std::size_t slot(const model::StepPlan& plan, const model::StepPlan::Segment& segment,
                   std::int64_t position) const {
    const std::int64_t index = position / limits_.block_tokens;
    EXPECT_LT(index, segment.block_count);
    const std::int32_t block = plan.blocks[static_cast<std::size_t>(segment.block_begin + index)];
    return static_cast<std::size_t>(block * limits_.block_tokens + position % limits_.block_tokens);
  }

  void write_cache(const model::StepPlan& plan) {
    const auto block_size = static_cast<std::size_t>(limits_.block_tokens);
    for (const auto& copy : plan.block_copies) {
      for (std::size_t i = 0; i < block_size; ++i) {
        cache_[static_cast<std::size_t>(copy.target) * block_size + i] =
            cache_[static_cast<std::size_t>(copy.source) * block_size + i];
      }
    }
    std::set<std::size_t> written;
    for (const auto& segment : plan.segments) {
      for (std::int32_t i = 0; i < segment.row_count; ++i) {
        const auto row = static_cast<std::size_t>(segment.row_begin + i);
        const std::int64_t position = segment.position_begin + i;
        ASSERT_EQ(plan.positions[row], position);
        const std::uint64_t before =
            position == 0 ? kNoPrefix : cache_[slot(plan, segment, position - 1)];
        const std::size_t target = slot(plan, segment, position);
        ASSERT_TRUE(written.insert(target).second) << "two rows write slot " << target;
        cache_[target] = extend(before, plan.tokens[row]);
      }
    }
  }

  /// The prefix that the cache holds at the end of a sequence's computed part.
  std::uint64_t cached_prefix(const Sequence& sequence, std::int64_t position) const {
    std::uint64_t expected = kNoPrefix;
    for (std::int64_t p = 0; p <= position; ++p) {
      expected = extend(expected, sequence.token_at(p));
      const std::int32_t block =
          sequence.blocks[static_cast<std::size_t>(p / limits_.block_tokens)];
      EXPECT_EQ(
          cache_[static_cast<std::size_t>(block * limits_.block_tokens + p % limits_.block_tokens)],
          expected)
          << "sequence " << sequence.serial << "." << sequence.choice << " position " << p;
    }
    return expected;
  }

  void take(const ScheduledStep::Use& use) {
    Sequence& sequence = *use.sequence;
    if (!scheduler_.confirm(use)) return;
    Job& job = *jobs_[static_cast<std::size_t>(sequence.serial)];
    const std::uint64_t prefix = cached_prefix(sequence, use.position);
    if (use.scores_prompt()) {
      ++job.times_scored[use.position];
      ++sequence.scored;
      if (!sequence.samples() && sequence.scored == sequence.prompt_size()) {
        scheduler_.remove(sequence);
      }
      return;
    }
    ASSERT_EQ(use.position + 1, sequence.known());
    std::vector<Sequence*> takers{&sequence};
    if (sequence.pending_forks > 0) {
      std::vector<Sequence*> children;
      for (std::size_t i = 1; i < job.sequences.size(); ++i) {
        children.push_back(job.sequences[i].get());
      }
      scheduler_.fork(sequence, children);
      takers.insert(takers.end(), children.begin(), children.end());
    }
    for (Sequence* taker : takers) {
      taker->generated.push_back(next_token(prefix, taker->choice));
      if (taker->num_generated() == job.request.sampling.max_tokens) scheduler_.remove(*taker);
    }
  }

  /// Every block's reference count is the number of tables it is in.
  void check_references() const {
    std::map<std::int32_t, std::int32_t> owners;
    for (const auto& job : jobs_) {
      for (const auto& sequence : job->sequences) {
        for (const std::int32_t block : sequence->blocks) ++owners[block];
      }
    }
    for (std::int32_t block = 0; block < limits_.kv_blocks; ++block) {
      const auto found = owners.find(block);
      ASSERT_EQ(scheduler_.blocks().references(block), found == owners.end() ? 0 : found->second)
          << "block " << block;
    }
  }

  /// Whoever runs comes before whoever waits, so that the first in line always goes on.
  void check_order() const {
    bool waiting_seen = false;
    for (const auto& job : jobs_) {
      for (const auto& sequence : job->sequences) {
        if (sequence->state == Sequence::State::kWaiting) waiting_seen = true;
        ASSERT_FALSE(waiting_seen && sequence->state == Sequence::State::kRunning)
            << "sequence " << sequence->serial << "." << sequence->choice << " overtook";
      }
    }
  }

  SchedulerLimits limits_;
  std::uint64_t num_tokens_;
  Scheduler scheduler_;
  std::vector<std::unique_ptr<Job>> jobs_;
  std::vector<std::uint64_t> cache_;
  model::StepPlan last_plan_;
  std::int64_t num_steps_ = 0;
  std::int64_t num_rows_ = 0;
  std::mt19937_64 random_{12345};
};

inline SchedulerLimits small_limits(std::int64_t blocks) {
  SchedulerLimits limits;
  limits.max_sequences = 8;
  limits.max_step_tokens = 16;
  limits.kv_blocks = blocks;
  limits.block_tokens = 4;
  limits.max_scored_rows = 5;
  return limits;
}

}  // namespace caravan::test
