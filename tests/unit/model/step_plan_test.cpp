#include <gtest/gtest.h>

#include "caravan/core/error.h"
#include "caravan/model/step_plan.h"

namespace caravan::model {
namespace {

StepPlan sample_plan() {
  StepPlan plan;
  plan.number = 41;
  plan.tokens = {5, 6, 7};
  plan.positions = {0, 1, 9};
  plan.segments = {{0, 2, 0, 0, 1}, {2, 1, 9, 1, 2}};
  plan.blocks = {3, 4, 5};
  plan.block_copies = {{1, 2}};
  plan.argmax_rows = {1};
  plan.logit_rows = {2};
  plan.image_work = {{3, 4, 1, 1, 0, 0, 0, 1}, {0, 3, 1, 2, 0, 2, 1, 1}};
  plan.pixels = {7, 255, 0};
  plan.image_blocks = {8, 2};
  plan.image_rows = {{0, 2, 0, 2, 0, 3}};
  plan.seen_tokens = {17, 5};
  plan.seen_blocks = {1, 0, 6};
  return plan;
}

TEST(StepPlan, RoundTripsThroughBytes) {
  EXPECT_EQ(StepPlan::deserialize(sample_plan().serialize()), sample_plan());
  StepPlan stop;
  stop.action = StepPlan::Action::kStop;
  EXPECT_EQ(StepPlan::deserialize(stop.serialize()), stop);
}

TEST(StepPlan, RefusesBytesOfAnotherLength) {
  auto bytes = sample_plan().serialize();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW(StepPlan::deserialize(std::span(bytes).first(length)), InternalError);
  }
  bytes.push_back(std::byte{0});
  EXPECT_THROW(StepPlan::deserialize(bytes), InternalError);
}

// One goes out every step.
TEST(StepPlan, TakesNoMemoryOnceItHasGrown) {
  const StepPlan sample = sample_plan();
  StepPlan smaller = sample;
  smaller.number = 42;
  smaller.tokens.pop_back();
  smaller.pixels.clear();
  std::vector<std::byte> bytes;
  sample.serialize_to(bytes);
  StepPlan plan;
  plan.deserialize_from(bytes);
  const auto* const buffer = bytes.data();
  const auto* const tokens = plan.tokens.data();
  for (const StepPlan& next : {smaller, sample}) {
    next.serialize_to(bytes);
    plan.deserialize_from(bytes);
    EXPECT_EQ(plan, next);
    EXPECT_EQ(bytes.data(), buffer);
    EXPECT_EQ(plan.tokens.data(), tokens);
  }
}

}  // namespace
}  // namespace caravan::model
