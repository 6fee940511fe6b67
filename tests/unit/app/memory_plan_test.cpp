#include "caravan/app/memory_plan.h"

#include <gtest/gtest.h>

#include "caravan/core/error.h"
#include "caravan/ops/kv_pool.h"
#include "support/expect_error.h"

namespace caravan::app {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

MemoryRequest request(std::size_t ranks, std::int64_t free_bytes) {
  MemoryRequest request;
  request.program_bytes = 0;  // far more than what this model needs
  model::LlamaConfig& config = request.config;
  config.vocab_size = 1000;
  config.hidden_size = 72;
  config.ffn_size = 192;
  config.num_layers = 3;
  config.num_heads = 9;
  config.num_kv_heads = 3;
  config.head_dim = 8;
  config.max_positions = 4096;
  request.max_sequences = 8;
  request.max_step_tokens = 64;
  request.needed_tokens = 8 * 100;
  request.largest_tokens = 100;
  request.free_bytes.assign(ranks, free_bytes);
  return request;
}

TEST(MemoryPlan, TakesWhatTheInputNeeds) {
  for (const std::size_t ranks : {1U, 2U, 3U, 5U, 12U}) {
    const MemoryPlan plan = plan_memory(request(ranks, 1000 * kMiB));
    EXPECT_EQ(plan.ranks.size(), ranks);
    EXPECT_GE(plan.kv_tokens(), 800) << ranks;
    EXPECT_LE(plan.kv_tokens(), 800 + 9 * ops::KvPool::kBlockTokens) << ranks;
  }
}

TEST(MemoryPlan, StaysWithinHalfOfWhatIsFree) {
  MemoryRequest large = request(2, 40 * kMiB);
  large.needed_tokens = 1 << 24;
  const MemoryPlan plan = plan_memory(large);
  EXPECT_GE(plan.kv_tokens(), large.largest_tokens);
  for (const RankMemory& rank : plan.ranks) {
    EXPECT_LE(plan.kv_bytes(rank),
              (rank.free_bytes - rank.weight_bytes - rank.activation_bytes) / 2);
  }
}

TEST(MemoryPlan, OneLongSequenceMayTakeMore) {
  MemoryRequest long_one = request(1, 40 * kMiB);
  const std::int64_t half = plan_memory([&] {
                              MemoryRequest all = long_one;
                              all.needed_tokens = 1 << 24;
                              return all;
                            }())
                                .kv_tokens();
  long_one.needed_tokens = long_one.largest_tokens = half * 3 / 2;
  EXPECT_GE(plan_memory(long_one).kv_tokens(), long_one.largest_tokens);
}

TEST(MemoryPlan, TakesWhatIsAskedFor) {
  MemoryRequest asked = request(3, 1000 * kMiB);
  asked.kv_bytes = 5 * kMiB;
  const MemoryPlan plan = plan_memory(asked);
  for (const RankMemory& rank : plan.ranks) EXPECT_LE(plan.kv_bytes(rank), 5 * kMiB);
  EXPECT_GT(plan.kv_bytes(plan.ranks[0]), 4 * kMiB);
  asked.kv_bytes = 10;
  test::expect_error<ConfigError>([&] { plan_memory(asked); }, "less than one block");
}

TEST(MemoryPlan, ReservesForOneOpenEndedRecord) {
  MemoryRequest open_ended = request(2, 40 * kMiB);
  open_ended.largest_tokens = open_ended.config.max_positions;
  open_ended.needed_tokens = 8 * open_ended.largest_tokens;
  EXPECT_GE(plan_memory(open_ended).kv_tokens(), open_ended.config.max_positions);
}

TEST(MemoryPlan, TheMemoryThatItAsksForSuffices) {
  for (const std::int64_t tokens : {1, 16, 17, 1000}) {
    MemoryRequest asked = request(3, 1000 * kMiB);
    asked.kv_bytes = plan_memory(asked).kv_bytes_for(tokens);
    EXPECT_GE(plan_memory(asked).kv_tokens(), tokens);
    EXPECT_LT(plan_memory(asked).kv_tokens(), tokens + ops::KvPool::kBlockTokens);
  }
}

TEST(MemoryPlan, SaysWhichRankLacksMemory) {
  MemoryRequest poor = request(2, 1000 * kMiB);
  poor.free_bytes[1] = 100'000;
  test::expect_error<ConfigError>([&] { plan_memory(poor); }, "rank 1 needs");
}

/// With images: 2 layers read 4 tiles of 17 tokens in 5 blocks.
MemoryRequest vision_request(std::size_t ranks, std::int64_t free_bytes) {
  MemoryRequest vision = request(ranks, free_bytes);
  model::VisionConfig config;
  config.tile_size = 56;
  config.patch_size = 14;
  config.width = 80;
  config.num_heads = 4;
  config.ffn_size = 320;
  config.num_local_layers = 3;
  config.num_global_layers = 2;
  config.saved_layers = {1, 2};
  config.cross_layers = {0, 2};
  config.image_token_id = vision.config.vocab_size;
  vision.config.vision = config;
  vision.needed_image_blocks = 8 * 5;
  vision.largest_image_group = 5;
  vision.preparation_bytes = kMiB;
  return vision;
}

TEST(MemoryPlan, TakesTheImagesThatTheInputShows) {
  for (const std::size_t ranks : {1U, 3U, 12U}) {
    const MemoryPlan plan = plan_memory(vision_request(ranks, 1000 * kMiB));
    EXPECT_EQ(plan.limits.image_blocks, 40);
    EXPECT_EQ(plan.ranks[0].preparation_bytes, kMiB);
    if (ranks > 1) {
      EXPECT_EQ(plan.ranks[1].preparation_bytes, 0);
    }
    for (const RankMemory& rank : plan.ranks) {
      EXPECT_GT(rank.encoder_bytes, 0);
      EXPECT_LT(rank.vision_weight_bytes, rank.weight_bytes);
      EXPECT_EQ(plan.total_bytes(rank), rank.weight_bytes + rank.activation_bytes +
                                            rank.encoder_bytes + rank.preparation_bytes +
                                            plan.kv_bytes(rank) + plan.image_bytes(rank));
    }
  }
}

TEST(MemoryPlan, ImagesThatNobodyShowsTakeNothing) {
  MemoryRequest text = vision_request(2, 1000 * kMiB);
  text.needed_image_blocks = text.largest_image_group = 0;
  const MemoryPlan plan = plan_memory(text);
  EXPECT_EQ(plan.limits.image_blocks, 0);
  for (const RankMemory& rank : plan.ranks) {
    EXPECT_EQ(rank.encoder_bytes + rank.preparation_bytes + plan.image_bytes(rank), 0);
    EXPECT_GT(rank.vision_weight_bytes, 0);
  }
}

TEST(MemoryPlan, ManyImagesLeaveRoomForTexts) {
  MemoryRequest many = vision_request(2, 60 * kMiB);
  many.needed_image_blocks = 1 << 24;
  const MemoryPlan plan = plan_memory(many);
  EXPECT_GE(plan.limits.image_blocks, many.largest_image_group);
  EXPECT_GE(plan.kv_tokens(), many.needed_tokens);
  for (const RankMemory& rank : plan.ranks) EXPECT_LE(plan.total_bytes(rank), rank.free_bytes);
}

TEST(MemoryPlan, KeepsImagesThatAreShownAgainInWhatIsLeft) {
  MemoryRequest again = vision_request(2, 1000 * kMiB);
  const MemoryPlan once = plan_memory(again);
  again.lasting_image_blocks = 1000;
  EXPECT_EQ(plan_memory(again).limits.image_blocks, 1000);
  EXPECT_EQ(plan_memory(again).limits.kv_blocks, once.limits.kv_blocks);
  again.lasting_image_blocks = 1 << 28;
  const MemoryPlan most = plan_memory(again);
  EXPECT_EQ(most.limits.kv_blocks, once.limits.kv_blocks);
  EXPECT_GT(most.limits.image_blocks, 1000);
  for (const RankMemory& rank : most.ranks) EXPECT_LE(most.total_bytes(rank), rank.free_bytes);
  again.image_bytes = most.image_bytes_for(7);
  EXPECT_EQ(plan_memory(again).limits.image_blocks, 7) << "what was asked for";
}

TEST(MemoryPlan, ImagesSideBySideMustFitTogether) {
  MemoryRequest asked = vision_request(2, 1000 * kMiB);
  asked.image_bytes = plan_memory(asked).image_bytes_for(5) - 1;
  const MemoryPlan tight = plan_memory(asked);
  EXPECT_EQ(tight.limits.image_blocks, 4);
  EXPECT_NE(image_fault(asked, tight, 5)
                .find("--image-memory " + std::to_string(*asked.image_bytes + 1) +
                      " or more, more nodes"),
            std::string::npos)
      << image_fault(asked, tight, 5);
  *asked.image_bytes += 1;
  EXPECT_EQ(plan_memory(asked).limits.image_blocks, 5);
  MemoryRequest huge = vision_request(1, 1000 * kMiB);
  huge.largest_image_group = huge.needed_image_blocks = 1 << 20;
  const MemoryPlan most = plan_memory(huge);
  EXPECT_LT(most.limits.image_blocks, huge.largest_image_group);
  EXPECT_NE(image_fault(huge, most, 1 << 20).find("four fifths of the free memory"),
            std::string::npos);
}

TEST(MemoryPlan, PlansTheScoresOfTextThatSeesManyImages) {
  const MemoryRequest usual = vision_request(1, 1000 * kMiB);
  MemoryRequest wide = usual;
  wide.most_seen_blocks = (usual.config.max_positions + 16 * 1000) / 16;
  const std::int64_t more =
      plan_memory(wide).ranks[0].activation_bytes - plan_memory(usual).ranks[0].activation_bytes;
  EXPECT_EQ(more,
            4 * 12 * usual.num_threads * (wide.most_seen_blocks * 16 - usual.config.max_positions));
}

TEST(MemoryPlan, AssumesAnImageForEachPrompt) {
  MemoryRequest assumed = vision_request(1, 1000 * kMiB);
  assume_records(assumed, 100);
  EXPECT_EQ(assumed.largest_image_group, 5);
  EXPECT_EQ(assumed.needed_image_blocks, 5 * assumed.max_sequences);
}

TEST(MemoryPlan, KnowsTheTypeOfTheCache) {
  MemoryRequest asked = request(2, 40 * kMiB);
  const MemoryPlan exact = plan_memory(asked);
  asked.kv_dtype = DType::kBFloat16;
  const MemoryPlan half = plan_memory(asked);
  EXPECT_EQ(2 * half.ranks[0].kv_block_bytes, exact.ranks[0].kv_block_bytes);
  MemoryRequest images = vision_request(1, 1000 * kMiB);
  const std::int64_t image_block = plan_memory(images).ranks[0].image_block_bytes;
  images.kv_dtype = DType::kBFloat16;
  EXPECT_EQ(2 * plan_memory(images).ranks[0].image_block_bytes, image_block);
}

TEST(MemoryPlan, CountsTheProgramOfEveryRank) {
  const MemoryPlan without = plan_memory(request(2, 40 * kMiB));
  MemoryRequest with = request(2, 40 * kMiB + kProgramBytes);
  with.program_bytes = kProgramBytes;
  const MemoryPlan plan = plan_memory(with);
  EXPECT_EQ(plan.kv_tokens(), without.kv_tokens());
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(plan.total_bytes(plan.ranks[rank]),
              without.total_bytes(without.ranks[rank]) + kProgramBytes);
  }
  with.free_bytes.assign(2, 40 * kMiB);
  test::expect_error<ConfigError>([&] { plan_memory(with); }, "program 144.00 MiB");
}

}  // namespace
}  // namespace caravan::app
