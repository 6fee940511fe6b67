// Random requests with images over random small pools: every row sees the right images, encoded,
// and everything ends.

#include "caravan/engine/image_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "caravan/engine/scheduler.h"

namespace caravan::engine {
namespace {

constexpr std::int32_t kImage = 1000;
constexpr std::int64_t kTileTokens = 7;
constexpr std::int64_t kPieces = 2;  // units at the end that write blocks

std::int64_t tiles_of(std::int64_t number) { return number % model::kMaxTiles + 1; }

enum Kind { kTexts, kWithImages };

/// Requests run by a scheduler over an encoder and a pool that remember which image they hold.
class Simulation {
 public:
  Simulation(const SchedulerLimits& limits)
      : scheduler_(limits),
        limits_(limits),
        pool_(static_cast<std::size_t>(limits.images.num_blocks), -1),
        cache_(static_cast<std::size_t>(limits.kv_blocks * limits.block_tokens), 0) {}

  /// `numbers`: the images of the prompt's image tokens.
  void submit(const std::vector<std::int32_t>& prompt, const std::vector<std::int64_t>& numbers,
              const SamplingParams& sampling) {
    auto job = std::make_unique<Job>();
    job->request.prompt = prompt;
    job->request.sampling = sampling;
    for (const std::int64_t number : numbers) {
      const std::vector<std::uint8_t> pixels{static_cast<std::uint8_t>(number)};
      job->request.images.push_back({"image " + std::to_string(number),
                                     {1, tiles_of(number)},
                                     std::make_shared<std::vector<std::uint8_t>>(pixels)});
    }
    job->numbers = numbers;
    job->visibility = ImageVisibility(prompt, kImage);
    for (std::int64_t choice = 0; choice < sampling.num_choices; ++choice) {
      auto sequence = std::make_unique<Sequence>();
      sequence->request = &job->request;
      sequence->serial = std::ssize(jobs_);
      sequence->choice = choice;
      if (!numbers.empty()) sequence->images = &job->visibility;
      job->sequences.push_back(std::move(sequence));
    }
    job->sequences[0]->pending_forks = sampling.num_choices - 1;
    scheduler_.submit(*job->sequences[0]);
    jobs_.push_back(std::move(job));
  }

  bool step() {
    ScheduledStep& step = scheduler_.plan();
    if (step.empty()) return false;
    ++num_steps_;
    encode(step);
    check_rows(step.plan);
    write_cache(step.plan);
    for (const auto& uses : {step.logit_uses, step.argmax_uses}) {
      for (const auto& use : uses) {
        if (scheduler_.confirm(use)) take(*use.sequence);
      }
    }
    check_references();
    check_order();
    return true;
  }

  void run_to_end() {
    while (step()) {
      ASSERT_LT(num_steps_, 20000) << "no progress";
      if (testing::Test::HasFailure()) return;
    }
    for (const auto& job : jobs_) {
      for (const auto& sequence : job->sequences) {
        EXPECT_EQ(sequence->num_generated(), job->request.sampling.max_tokens);
      }
    }
    const ImageStore& store = scheduler_.images().store();
    EXPECT_EQ(store.blocks().num_used(), store.num_unreferenced_blocks()) << "nobody needs any";
  }

  const Scheduler& scheduler() const { return scheduler_; }
  std::int64_t num_rows() const { return num_rows_; }
  std::int64_t num_steps() const { return num_steps_; }
  std::int64_t num_busy_steps() const { return num_busy_steps_; }
  std::int64_t num_running(Kind kind) const {
    return count(
        kind, [](const Sequence& sequence) { return sequence.state == Sequence::State::kRunning; });
  }
  std::int64_t num_done(Kind kind) const {
    return count(kind, [](const Sequence& sequence) {
      return sequence.num_generated() == sequence.request->sampling.max_tokens;
    });
  }

 private:
  struct Job {
    Request request;
    std::vector<std::int64_t> numbers;
    ImageVisibility visibility;
    std::vector<std::unique_ptr<Sequence>> sequences;
  };

  template <typename Condition>
  std::int64_t count(Kind kind, const Condition& condition) const {
    std::int64_t count = 0;
    for (const auto& job : jobs_) {
      if (job->numbers.empty() != (kind == kTexts)) continue;
      for (const auto& sequence : job->sequences) {
        if (condition(*sequence)) ++count;
      }
    }
    return count;
  }

  /// Each kind keeps its order.
  void check_order() const {
    for (const Kind kind : {kTexts, kWithImages}) {
      bool waiting_seen = false;
      for (const auto& job : jobs_) {
        if (job->numbers.empty() != (kind == kTexts)) continue;
        for (const auto& sequence : job->sequences) {
          if (sequence->state == Sequence::State::kWaiting) waiting_seen = true;
          ASSERT_FALSE(waiting_seen && sequence->state == Sequence::State::kRunning)
              << "sequence " << sequence->serial << "." << sequence->choice << " overtook";
        }
      }
    }
  }

  void encode(const ScheduledStep& step) {
    double rows = 0;
    double largest = 0;
    for (const auto& work : step.plan.image_work) {
      encode(step.plan, work);
      const std::vector<double>& unit_rows = units_of(encoding_);
      for (std::int32_t i = 0; i < work.unit_count; ++i) {
        const double unit = unit_rows.at(static_cast<std::size_t>(work.unit_begin + i));
        rows += unit;
        largest = std::max(largest, unit);
      }
    }
    EXPECT_EQ(step.image_work_rows, rows);
    // One budget for text and images, and one unit of work whatever it costs.
    const auto together = static_cast<double>(step.plan.tokens.size()) + rows;
    EXPECT_LE(together, static_cast<double>(limits_.max_step_tokens) + largest);
    if (step.plan.image_work.size() > 2) ++num_busy_steps_;
  }

  void encode(const model::StepPlan& plan, const model::StepPlan::ImageWork& work) {
    ASSERT_GE(work.unit_count, 1);
    ASSERT_EQ(work.pixel_count, work.unit_begin == 0 ? 1 : 0);
    if (work.unit_begin == 0) {
      encoding_ = plan.pixels.at(static_cast<std::size_t>(work.pixel_begin));
      units_done_ = 0;
    }
    ASSERT_EQ(work.unit_begin, units_done_);
    ASSERT_EQ(work.tiles_across, tiles_of(encoding_));
    ASSERT_EQ(work.block_count, blocks_of(encoding_));
    units_done_ += work.unit_count;
    const std::int64_t num_units = std::ssize(units_of(encoding_));
    ASSERT_LE(units_done_, num_units);
    if (units_done_ <= num_units - kPieces) return;
    for (std::int32_t i = 0; i < work.block_count; ++i) {
      const std::int32_t block =
          plan.image_blocks.at(static_cast<std::size_t>(work.block_begin + i));
      pool_[static_cast<std::size_t>(block)] = units_done_ == num_units ? encoding_ : -1;
    }
  }

  const std::vector<double>& units_of(std::int64_t number) const {
    return limits_.images.costs[static_cast<std::size_t>(tiles_of(number) - 1)].unit_rows;
  }

  std::int64_t blocks_of(std::int64_t number) const {
    return ceil_div(kTileTokens * tiles_of(number), limits_.images.block_tokens);
  }

  /// Whoever holds the last block of the rows has the same text and images up to there.
  const Job& job_of(const model::StepPlan& plan, const model::StepPlan::Segment& segment) const {
    const auto last = static_cast<std::size_t>(segment.block_count - 1);
    const std::int32_t block = plan.blocks[static_cast<std::size_t>(segment.block_begin) + last];
    for (const auto& job : jobs_) {
      for (const auto& sequence : job->sequences) {
        if (sequence->blocks.size() > last && sequence->blocks[last] == block) return *job;
      }
    }
    throw std::logic_error("rows of nobody");
  }

  /// What is written to the KV cache at a position of a job: says which tokens and images led to
  /// it.
  static std::uint64_t content(const Job& job, std::int64_t end) {
    std::uint64_t value = 1;
    for (std::int64_t position = 0; position < end; ++position) {
      const bool marked = position < std::ssize(job.request.prompt) &&
                          job.request.prompt[static_cast<std::size_t>(position)] == kImage;
      value = value * 31 + (marked ? 2 : 1);
      const Range images = job.visibility.span_at(position).images;
      for (std::int64_t image = images.begin; image < images.end; ++image) {
        value =
            value * 37 + static_cast<std::uint64_t>(job.numbers[static_cast<std::size_t>(image)]);
      }
    }
    return value;
  }

  /// Copies and rows of a step: every position that the rows look back at is there and right.
  void write_cache(const model::StepPlan& plan) {
    const auto size = static_cast<std::size_t>(limits_.block_tokens);
    for (const auto& copy : plan.block_copies) {
      std::copy_n(cache_.begin() + copy.source * limits_.block_tokens, size,
                  cache_.begin() + copy.target * limits_.block_tokens);
    }
    for (const auto& segment : plan.segments) {
      const Job& job = job_of(plan, segment);
      const std::int64_t end = segment.position_begin + segment.row_count;
      for (std::int64_t position = 0; position < end; ++position) {
        const std::int32_t block = plan.blocks[static_cast<std::size_t>(
            segment.block_begin + position / limits_.block_tokens)];
        std::uint64_t& slot = cache_[static_cast<std::size_t>(block) * size +
                                     static_cast<std::size_t>(position) % size];
        if (position >= segment.position_begin) slot = content(job, position + 1);
        ASSERT_EQ(slot, content(job, position + 1)) << "position " << position;
      }
    }
    num_rows_ += std::ssize(plan.tokens);
  }

  void check_rows(const model::StepPlan& plan) {
    std::vector<const model::StepPlan::ImageRows*> seen(plan.tokens.size(), nullptr);
    for (const auto& rows : plan.image_rows) {
      for (std::int32_t i = 0; i < rows.row_count; ++i) {
        auto& place = seen.at(static_cast<std::size_t>(rows.row_begin + i));
        ASSERT_EQ(place, nullptr);
        place = &rows;
      }
    }
    for (const auto& segment : plan.segments) {
      const Job& job = job_of(plan, segment);
      for (std::int32_t i = 0; i < segment.row_count; ++i) {
        const Range images = job.visibility.span_at(segment.position_begin + i).images;
        const auto* rows = seen[static_cast<std::size_t>(segment.row_begin + i)];
        ASSERT_EQ(rows == nullptr, images.empty());
        if (rows == nullptr) continue;
        ASSERT_EQ(rows->image_count, images.size());
        std::int32_t next = rows->block_begin;
        for (std::int64_t image = images.begin; image < images.end; ++image) {
          const std::int64_t number = job.numbers[static_cast<std::size_t>(image)];
          ASSERT_EQ(plan.seen_tokens.at(
                        static_cast<std::size_t>(rows->image_begin + image - images.begin)),
                    kTileTokens * tiles_of(number));
          for (std::int64_t block = 0; block < blocks_of(number); ++block, ++next) {
            ASSERT_EQ(pool_.at(static_cast<std::size_t>(
                          plan.seen_blocks.at(static_cast<std::size_t>(next)))),
                      number)
                << "an image is read that is not there";
          }
        }
        ASSERT_EQ(next, rows->block_begin + rows->block_count);
      }
    }
  }

  void take(Sequence& sequence) {
    Job& job = *jobs_[static_cast<std::size_t>(sequence.serial)];
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
      taker->generated.push_back(1);
      if (taker->num_generated() == job.request.sampling.max_tokens) scheduler_.remove(*taker);
    }
  }

  /// An image has as many references as sequences hold it.
  void check_references() const {
    std::map<const StoredImage*, std::int64_t> holders;
    for (const auto& job : jobs_) {
      for (const auto& sequence : job->sequences) {
        if (sequence->state != Sequence::State::kRunning) {
          EXPECT_TRUE(sequence->held_images.empty());
        }
        for (const StoredImage* image : sequence->held_images) ++holders[image];
      }
    }
    for (const auto& [image, count] : holders) ASSERT_EQ(image->references, count);
  }

  Scheduler scheduler_;
  SchedulerLimits limits_;
  std::vector<std::int64_t> pool_;    // of each block: number of the image in it, or -1
  std::vector<std::uint64_t> cache_;  // of each position in the KV pool
  std::int64_t num_rows_ = 0;
  std::int64_t encoding_ = -1;
  std::int64_t units_done_ = 0;
  std::int64_t num_busy_steps_ = 0;  // that work on three images or more
  std::vector<std::unique_ptr<Job>> jobs_;
  std::int64_t num_steps_ = 0;
};

SchedulerLimits ample_limits() {
  SchedulerLimits limits;
  limits.block_tokens = 4;
  limits.max_step_tokens = 20;
  limits.kv_blocks = 100;
  limits.images.block_tokens = 4;
  limits.images.num_blocks = 50;
  for (std::size_t i = 0; i < limits.images.costs.size(); ++i) {
    limits.images.costs[i].tokens = kTileTokens * (static_cast<std::int64_t>(i) + 1);
    limits.images.costs[i].unit_rows.assign(i + 2 + kPieces, 20);
  }
  return limits;
}

TEST(ImageSchedule, TextBehindAnImageIsComputedOnceForAllThatWaitForIt) {
  Simulation simulation(ample_limits());
  std::vector<std::int32_t> prompt(41, 1);
  prompt[3] = kImage;
  SamplingParams sampling;
  sampling.max_tokens = 1;
  for (int i = 0; i < 3; ++i) simulation.submit(prompt, {2}, sampling);
  ASSERT_TRUE(simulation.step());
  EXPECT_EQ(simulation.scheduler().num_running(), 3) << "all begin before the image is encoded";
  simulation.run_to_end();
  EXPECT_EQ(simulation.num_rows(), 41 + 2 * (3 + 1)) << "3 positions before it, and the last one";
}

TEST(ImageSchedule, TextBehindDifferentImagesIsNotShared) {
  Simulation simulation(ample_limits());
  std::vector<std::int32_t> prompt(41, 1);
  prompt[9] = kImage;
  SamplingParams sampling;
  sampling.max_tokens = 1;
  simulation.submit(prompt, {0}, sampling);
  simulation.submit(prompt, {1}, sampling);
  simulation.run_to_end();
  EXPECT_EQ(simulation.num_rows(), 41 + (41 - 8)) << "two blocks before the image's are shared";
}

TEST(ImageSchedule, ImagesThatOnlySharedRowsSeeAreNotTaken) {
  Simulation simulation(ample_limits());
  std::vector<std::int32_t> prompt(41, 1);
  prompt[3] = prompt[20] = kImage;
  SamplingParams sampling;
  sampling.max_tokens = 1;
  simulation.submit(prompt, {0, 1}, sampling);
  simulation.run_to_end();
  simulation.submit(prompt, {0, 1}, sampling);
  simulation.run_to_end();
  EXPECT_EQ(simulation.num_rows(), 41 + 1);
  EXPECT_EQ(simulation.scheduler().images().store().num_reused(), 1) << "the second one";
}

TEST(ImageSchedule, AStepWorksOnAsManyImagesAsItsBudgetAllows) {
  const auto steps = [](std::int64_t max_step_tokens, double unit_rows) {
    SchedulerLimits limits = ample_limits();
    limits.max_step_tokens = max_step_tokens;
    for (auto& cost : limits.images.costs) cost.unit_rows.assign(10, unit_rows);
    Simulation simulation(limits);
    SamplingParams sampling;
    sampling.max_tokens = 1;
    for (std::int64_t i = 0; i < 6; ++i) {
      simulation.submit({kImage, 1, 1, static_cast<std::int32_t>(i)}, {i}, sampling);
    }
    simulation.run_to_end();
    return simulation.num_steps();
  };
  // Six images of 40 rows, and as many prompts of four tokens behind them.
  EXPECT_EQ(steps(1000, 4), 2);
  EXPECT_GE(steps(100, 4), 3);
  EXPECT_LE(steps(100, 4), 5);
  EXPECT_EQ(steps(8, 100), 60) << "one unit a step, whatever it costs";
}

TEST(ImageSchedule, PromptsAndImagesShareTheBudget) {
  SchedulerLimits limits = ample_limits();
  limits.max_step_tokens = 20;
  limits.prefix_sharing = false;
  for (auto& cost : limits.images.costs) cost.unit_rows.assign(40, 5);
  Simulation simulation(limits);
  SamplingParams sampling;
  sampling.max_tokens = 1;
  simulation.submit({kImage, 1}, {0}, sampling);
  simulation.submit(std::vector<std::int32_t>(100, 1), {}, sampling);
  // The text is first to come; then ten rows each, until it is through; then the image has all.
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(simulation.step());
  EXPECT_EQ(simulation.num_rows(), 100);
  simulation.run_to_end();
  EXPECT_EQ(simulation.num_steps(), 9 + 6 + 1);
}

/// Two thirds of the pool are one image: those with images run one after the other.
SchedulerLimits one_image_limits() {
  SchedulerLimits limits = ample_limits();
  limits.max_step_tokens = 200;
  limits.max_sequences = 6;
  limits.images.num_blocks = 10;
  limits.prefix_sharing = false;
  return limits;
}

TEST(ImageSchedule, TextPassesThoseThatWaitForImages) {
  Simulation simulation(one_image_limits());
  SamplingParams sampling;
  sampling.max_tokens = 10;
  for (std::int64_t i = 0; i < 5; ++i) simulation.submit({kImage, 1}, {3 + 4 * i}, sampling);
  for (std::int32_t i = 0; i < 20; ++i) simulation.submit({1, 2, i}, {}, sampling);
  // Four of text at a time beside the one that has its image; the sixth place is the next one's.
  std::int64_t most_texts = 0;
  while (simulation.step()) {
    ASSERT_LE(simulation.num_running(kWithImages), 1);
    most_texts = std::max(most_texts, simulation.num_running(kTexts));
    if (simulation.num_done(kTexts) == 20) break;
  }
  EXPECT_EQ(most_texts, 4);
  EXPECT_LE(simulation.num_steps(), 5 * 12);
  EXPECT_GE(simulation.num_done(kWithImages), 3) << "text takes no place from images";
  simulation.run_to_end();
  EXPECT_LE(simulation.num_steps(), 5 * 14);
}

TEST(ImageSchedule, ThoseWithImagesAreNotStarvedByText) {
  Simulation simulation(one_image_limits());
  SamplingParams sampling;
  sampling.max_tokens = 10;
  for (std::int64_t i = 0; i < 5; ++i) simulation.submit({kImage, 1}, {3 + 4 * i}, sampling);
  std::int64_t steps = 0;
  for (std::int32_t i = 0; simulation.num_done(kWithImages) < 5; ++steps) {
    ASSERT_LT(steps, 5 * 14);
    while (simulation.scheduler().num_waiting() - simulation.scheduler().num_waiting_images() < 8) {
      simulation.submit({1, 2, ++i}, {}, sampling);
    }
    simulation.step();
  }
  simulation.run_to_end();
}

TEST(ImageSchedule, PlansGrowWithTheImagesSideBySideAndNotWithTheirSquare) {
  constexpr std::int32_t kImages = 50;
  ImageStoreLimits limits;
  limits.num_blocks = 4;
  limits.block_tokens = kTileTokens;
  for (std::size_t i = 0; i < limits.costs.size(); ++i) {
    limits.costs[i].tokens = kTileTokens * (static_cast<std::int64_t>(i) + 1);
    limits.costs[i].unit_rows.assign(kPieces, 1.0);
  }
  Request request;
  request.prompt.assign(kImages, kImage);
  request.prompt.insert(request.prompt.end(), {1, 1});
  request.images.assign(kImages, {"image 1", {1, 2}, nullptr});
  const ImageVisibility visibility(request.prompt, kImage);
  Sequence sequence;
  sequence.request = &request;
  sequence.images = &visibility;
  ImageSchedule schedule(limits);
  ASSERT_TRUE(schedule.admit(sequence, 0, {}));
  model::StepPlan plan;
  schedule.add_rows(sequence, {10, kImages + 2}, 5, plan);
  ASSERT_EQ(std::ssize(plan.image_rows), kImages - 10);
  for (std::int32_t i = 0; i < kImages - 10; ++i) {
    const std::int32_t seen = 11 + i;
    const std::int32_t rows = seen == kImages ? 3 : 1;  // the text sees them all, too
    EXPECT_EQ(plan.image_rows[static_cast<std::size_t>(i)],
              (model::StepPlan::ImageRows{5 + i, rows, 0, seen, 0, 2 * seen}));
  }
  EXPECT_EQ(plan.seen_tokens, std::vector<std::int32_t>(kImages, 2 * kTileTokens));
  EXPECT_EQ(std::ssize(plan.seen_blocks), 2 * kImages);
  schedule.release(sequence);
}

TEST(ImageScheduleProperty, RowsSeeTheirImagesAndEverythingEnds) {
  std::int64_t put_backs = 0;
  std::int64_t image_put_backs = 0;
  std::int64_t reused = 0;
  std::int64_t reused_rows = 0;
  std::int64_t busy_steps = 0;
  std::int64_t accepted = 0;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t limit) {
      return static_cast<std::int64_t>(random() % limit);
    };
    SchedulerLimits limits;
    limits.block_tokens = 1 + below(6);
    limits.max_sequences = 1 + below(6);
    limits.max_step_tokens = 1 + below(24);
    limits.prefix_sharing = below(4) != 0;
    limits.max_drafts = below(6);
    limits.num_tokens = kImage;
    limits.images.block_tokens = 1 + below(9);
    for (std::size_t i = 0; i < limits.images.costs.size(); ++i) {
      limits.images.costs[i].tokens = kTileTokens * (static_cast<std::int64_t>(i) + 1);
      limits.images.costs[i].unit_rows.assign(i + 2 + kPieces, 0.5 + static_cast<double>(below(9)));
    }
    std::int64_t longest = 1;
    std::int64_t largest_group = 0;
    struct Text {
      std::vector<std::int32_t> prompt;
      std::vector<std::int64_t> numbers;
      SamplingParams sampling;
    };
    std::vector<Text> texts(static_cast<std::size_t>(1 + below(10)));
    const std::uint64_t density = 2 + random() % 12;
    for (Text& text : texts) {
      text.prompt.assign(static_cast<std::size_t>(1 + below(30)), 1);
      text.sampling.max_tokens = 1 + below(20);
      text.sampling.num_choices = 1 + below(3);
      std::set<std::int64_t> group;
      std::int64_t blocks = 0;
      for (std::int32_t& token : text.prompt) {
        if (random() % density != 0) {
          group.clear();
          blocks = 0;
          continue;
        }
        token = kImage;
        text.numbers.push_back(below(9));
        const std::int64_t tokens = kTileTokens * tiles_of(text.numbers.back());
        if (group.insert(text.numbers.back()).second) {
          blocks += ceil_div(tokens, limits.images.block_tokens);
        }
        largest_group = std::max(largest_group, blocks);
      }
      longest = std::max(longest, std::ssize(text.prompt) + text.sampling.max_tokens);
    }
    limits.kv_blocks = ceil_div(longest, limits.block_tokens) + below(20);
    limits.images.num_blocks = largest_group + below(12);
    Simulation simulation(limits);
    for (const Text& text : texts) {
      simulation.submit(text.prompt, text.numbers, text.sampling);
      if (below(2) == 0) simulation.step();
    }
    simulation.run_to_end();
    put_backs += simulation.scheduler().num_put_backs();
    image_put_backs += simulation.scheduler().images().num_put_backs();
    reused += simulation.scheduler().images().store().num_reused();
    accepted += simulation.scheduler().num_accepted();
    reused_rows += simulation.scheduler().tables().num_reused_positions();
    busy_steps += simulation.num_busy_steps();
    if (HasFailure()) return;
  }
  EXPECT_GT(busy_steps, 100) << "steps were meant to work on several images";
  EXPECT_GT(put_backs, 100) << "the pools were meant to be too small";
  EXPECT_GT(image_put_backs, 100) << "the pools were meant to be too small";
  EXPECT_GT(reused, 100);
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(reused_rows, 10000) << "prompts were meant to begin alike";
}

}  // namespace
}  // namespace caravan::engine
