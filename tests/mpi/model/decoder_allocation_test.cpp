// "No allocation inside the layer loop" (model/decoder.h), on any number of ranks.

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <vector>

#include "caravan/core/thread_team.h"
#include "caravan/model/decoder.h"
#include "support/allocation_counter.h"
#include "support/rank_groups.h"
#include "support/tiny_model.h"

namespace caravan::model {
namespace {

/// Rows of two sequences: `count` of one, at positions from `first` on, and one row of another.
StepPlan two_sequences(std::int32_t first, std::int32_t count) {
  StepPlan plan;
  for (std::int32_t i = 0; i < count; ++i) plan.positions.push_back(first + i);
  plan.positions.push_back(first);
  plan.tokens.assign(plan.positions.size(), 7);
  plan.segments = {{0, count, first, 0, 2}, {count, 1, first, 2, 2}};
  plan.blocks = {4, 1, 0, 3};
  plan.argmax_rows = {count};
  return plan;
}

/// Allocations between the embedding and the end of the last layer.
std::int64_t allocations_in_layers(Decoder& decoder, const StepPlan& plan) {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  const std::int64_t last = decoder.config().num_layers - 1;
  decoder.set_probe([&](std::int64_t layer, const at::Tensor&) {
    if (layer == -1) begin = test::allocation_count();
    if (layer == last) end = test::allocation_count();
  });
  decoder.forward(plan);
  EXPECT_GT(begin, 0);
  return end - begin;
}

TEST(DecoderAllocation, LayersAllocateNothing) {
  LlamaConfig config = test::uneven_config();
  config.attention_bias = true;
  config.mlp_bias = true;
  test::RandomWeightSource source(config, 3);
  ThreadTeam team(2);
  const ops::Context context(team, ops::detect_isa());
  test::for_each_group([&](parallel::MpiCommunicator& group) {
    Decoder decoder(config, source, context, group, {32, 6});
    allocations_in_layers(decoder, two_sequences(0, 20));  // scratch grows to what is needed
    EXPECT_EQ(allocations_in_layers(decoder, two_sequences(0, 20)), 0);
    EXPECT_EQ(allocations_in_layers(decoder, two_sequences(20, 1)), 0);
    EXPECT_EQ(allocations_in_layers(decoder, two_sequences(21, 9)), 0);
  });
}

/// Allocations of the choice of `num_rows` best tokens.
std::int64_t allocations_in_argmax(Decoder& decoder, std::int32_t num_rows) {
  StepPlan plan = two_sequences(0, 20);
  plan.argmax_rows.clear();
  for (std::int32_t row = 0; row < num_rows; ++row) plan.argmax_rows.push_back(row);
  decoder.forward(plan);
  const std::int64_t before = test::allocation_count();
  EXPECT_EQ(std::ssize(decoder.argmax()), num_rows);
  return test::allocation_count() - before;
}

TEST(DecoderAllocation, BestTokensAllocateNothingEach) {
  const LlamaConfig config = test::uneven_config();
  test::RandomWeightSource source(config, 3);
  ThreadTeam team(2);
  const ops::Context context(team, ops::detect_isa());
  test::for_each_group([&](parallel::MpiCommunicator& group) {
    Decoder decoder(config, source, context, group, {32, 6});
    allocations_in_argmax(decoder, 20);  // scratch grows to what is needed
    const std::int64_t of_one = allocations_in_argmax(decoder, 1);
    EXPECT_EQ(allocations_in_argmax(decoder, 20), of_one);
    EXPECT_LE(of_one, 20);  // tensors that name the rows, and what the ranks exchange
  });
}

TEST(DecoderAllocation, LayersThatReadImagesAllocateNothing) {
  LlamaConfig config = test::uneven_vision_config();
  test::RandomWeightSource source(config, 4);
  ThreadTeam team(2);
  const ops::Context context(team, ops::detect_isa());
  test::for_each_group([&](parallel::MpiCommunicator& group) {
    Decoder decoder(config, source, context, group, {32, 6, 2, 5});
    const auto seeing = [](std::int32_t rows) {
      StepPlan plan = two_sequences(0, rows);
      plan.image_rows = {{0, rows, 0, 2, 0, 4}};
      plan.seen_tokens = {17, 30};
      plan.seen_blocks = {3, 0, 4, 1};
      return plan;
    };
    allocations_in_layers(decoder, seeing(20));  // scratch grows to what is needed
    EXPECT_EQ(allocations_in_layers(decoder, seeing(20)), 0);
    EXPECT_EQ(allocations_in_layers(decoder, seeing(1)), 0);
    EXPECT_EQ(allocations_in_layers(decoder, seeing(9)), 0);
  });
}

TEST(AllocationCounter, SeesTensorsAndVectors) {
  const std::int64_t before = test::allocation_count();
  const std::vector<float> values(100);
  const std::int64_t middle = test::allocation_count();
  const at::Tensor tensor = at::empty({3}, at::kFloat);
  EXPECT_EQ(middle - before, 1);
  EXPECT_GE(test::allocation_count() - middle, 1);
  EXPECT_EQ(std::ssize(values) + tensor.numel(), 103);
}

}  // namespace
}  // namespace caravan::model
