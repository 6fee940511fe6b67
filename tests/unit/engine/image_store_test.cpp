#include "caravan/engine/image_store.h"

#include <gtest/gtest.h>

#include "caravan/core/error.h"
#include "caravan/model/vision_encoder.h"
#include "support/tiny_model.h"

namespace caravan::engine {
namespace {

/// Blocks of 10 tokens; an image of t tiles has 10 t tokens and 2 + t units of 4 rows each.
ImageStoreLimits limits(std::int64_t num_blocks) {
  ImageStoreLimits result;
  result.num_blocks = num_blocks;
  result.block_tokens = 10;
  for (std::size_t i = 0; i < result.costs.size(); ++i) {
    result.costs[i].tokens = 10 * (static_cast<std::int64_t>(i) + 1);
    result.costs[i].unit_rows.assign(i + 3, 4.0);
  }
  return result;
}

PromptImage image(const std::string& name, std::int64_t tiles) {
  return {name, {1, tiles}, std::make_shared<std::vector<std::uint8_t>>(5, std::uint8_t{7})};
}

class ImageStoreTest : public testing::Test {
 protected:
  /// Acquires all or nothing; the pointers.
  std::vector<StoredImage*> acquire(const std::vector<PromptImage>& images) {
    std::vector<StoredImage*> held;
    if (!store_.acquire(images, held)) {
      EXPECT_TRUE(held.empty());
    }
    return held;
  }
  void encode_all(StoredImage& stored) {
    while (!stored.stored()) {
      model::StepPlan plan;
      store_.encode(stored, 1000, plan);
    }
  }

  ImageStore store_{limits(6)};
};

TEST_F(ImageStoreTest, SharesByContent) {
  const auto first = acquire({image("a", 2), image("b", 1), image("a", 2)});
  ASSERT_EQ(first.size(), 3U);
  EXPECT_EQ(first[0], first[2]);
  EXPECT_EQ(store_.blocks().num_used(), 3);
  EXPECT_EQ(acquire({image("b", 1)}).at(0), first[1]);
  EXPECT_EQ(first[0]->references, 2);
  EXPECT_EQ(first[1]->references, 2);
  EXPECT_EQ(store_.num_reused(), 2);
  EXPECT_EQ(store_.num_unencoded(), 2);
}

TEST_F(ImageStoreTest, TakesAllImagesOrNone) {
  const auto held = acquire({image("a", 4)});
  EXPECT_TRUE(acquire({image("a", 4), image("b", 1), image("c", 2)}).empty());
  EXPECT_EQ(held[0]->references, 1);
  EXPECT_EQ(store_.blocks().num_used(), 4);
}

TEST_F(ImageStoreTest, KeepsWhatNobodyNeedsUntilItsBlocksAreWanted) {
  for (const char* name : {"a", "b", "c"}) {
    StoredImage& stored = *acquire({image(name, 2)}).at(0);
    encode_all(stored);
    store_.release(stored);
  }
  EXPECT_EQ(store_.num_unreferenced_blocks(), 6);
  // "a" is used again, so that "b" is the one unused for longest.
  StoredImage& a = *acquire({image("a", 2)}).at(0);
  EXPECT_TRUE(a.stored());
  store_.release(a);
  static_cast<void>(acquire({image("d", 1)}));
  EXPECT_EQ(store_.num_images(), 3);
  EXPECT_TRUE(acquire({image("a", 2)}).at(0)->stored());
  EXPECT_TRUE(acquire({image("c", 2)}).at(0)->stored());
  EXPECT_TRUE(acquire({image("b", 2)}).empty()) << "one block is free, nobody gives any";
}

TEST_F(ImageStoreTest, KeepsWhatIsShownAgainSoonest) {
  const auto use = [&](const std::string& name, std::int64_t next_use) {
    PromptImage shown = image(name, 2);
    shown.next_use = next_use;
    StoredImage& stored = *acquire({shown}).at(0);
    const bool was_there = stored.stored();
    encode_all(stored);
    store_.release(stored);
    return was_there;
  };
  // Room for three. Round and round four images, of which the oldest would never be there.
  constexpr std::int64_t kRounds = 12;
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < 4 * kRounds; ++i) {
    const std::int64_t next = i + 4 < 4 * kRounds ? i + 4 : PromptImage::kNeverAgain;
    if (use(std::string(1, static_cast<char>('a' + i % 4)), next)) ++found;
  }
  // Two of three images are there after the first round: with one in use, two others stay.
  EXPECT_GE(found, (4 * kRounds - 4) * 2 / 3 - 1);
  // Those that are not shown again leave first.
  EXPECT_FALSE(use("x", 100));
  EXPECT_FALSE(use("y", PromptImage::kNeverAgain));
  EXPECT_FALSE(use("z", 102));
  EXPECT_FALSE(use("w", 101));
  EXPECT_TRUE(use("x", 103));
  EXPECT_TRUE(use("z", 104));
}

TEST_F(ImageStoreTest, DoesNotDropWhatIsAskedForToMakeRoomForTheRest) {
  for (const char* name : {"a", "b"}) {
    StoredImage& stored = *acquire({image(name, 3)}).at(0);
    encode_all(stored);
    store_.release(stored);
  }
  const auto held = acquire({image("a", 3), image("c", 3)});
  ASSERT_EQ(held.size(), 2U);
  EXPECT_TRUE(held[0]->stored());
  store_.release(*held[1]);
  store_.release(*held[0]);
  EXPECT_TRUE(acquire({image("a", 3), image("d", 4)}).empty());
  EXPECT_EQ(store_.num_unreferenced_blocks(), 3) << "never begun, c is forgotten";
}

TEST_F(ImageStoreTest, EncodesInUnitsWithinABound) {
  StoredImage& stored = *acquire({image("a", 3)}).at(0);  // 5 units
  model::StepPlan plan;
  EXPECT_EQ(store_.encode(stored, 9, plan), 8);
  ASSERT_EQ(plan.image_work.size(), 1U);
  EXPECT_EQ(plan.image_work[0], (model::StepPlan::ImageWork{0, 2, 1, 3, 0, 5, 0, 3}));
  EXPECT_EQ(plan.pixels.size(), 5U);
  EXPECT_EQ(store_.encoding(), &stored);
  plan = {};
  EXPECT_EQ(store_.encode(stored, 1, plan), 4) << "one unit at least";
  EXPECT_EQ(plan.image_work.at(0), (model::StepPlan::ImageWork{2, 1, 1, 3, 0, 0, 0, 3}));
  EXPECT_TRUE(plan.pixels.empty());
  EXPECT_EQ(plan.image_blocks, stored.blocks);
  EXPECT_FALSE(stored.stored());
  plan = {};
  EXPECT_EQ(store_.next_unit_rows(stored), 4);
  EXPECT_EQ(store_.encode(stored, 100, plan), 8);
  EXPECT_TRUE(stored.stored());
  EXPECT_EQ(store_.encoding(), nullptr);
  EXPECT_EQ(store_.num_encoded(), 1);
  EXPECT_EQ(store_.num_unencoded(), 0);
  // Another image in the same step.
  StoredImage& next = *acquire({image("b", 1)}).at(0);
  EXPECT_EQ(store_.encode(next, 4, plan), 4);
  EXPECT_EQ(plan.image_work.at(1), (model::StepPlan::ImageWork{0, 1, 1, 1, 0, 5, 3, 1}));
}

TEST_F(ImageStoreTest, GoesOnWithAnImageThatComesBackAndForgetsOneThatIsDropped) {
  StoredImage& begun = *acquire({image("a", 4)}).at(0);
  model::StepPlan plan;
  store_.encode(begun, 9, plan);
  store_.release(begun);
  StoredImage& again = *acquire({image("a", 4)}).at(0);
  EXPECT_EQ(again.units_done, 2);
  store_.release(again);
  StoredImage& other = *acquire({image("b", 4)}).at(0);
  EXPECT_EQ(store_.encoding(), nullptr);
  EXPECT_EQ(store_.num_unencoded(), 1);
  encode_all(other);
  store_.release(other);
  EXPECT_EQ(acquire({image("a", 4)}).at(0)->units_done, 0);
}

TEST_F(ImageStoreTest, RefusesTwoImagesAtATimeAndTwoWithOneHash) {
  const auto held = acquire({image("a", 1), image("b", 1)});
  model::StepPlan plan;
  store_.encode(*held[0], 1, plan);
  EXPECT_THROW(store_.encode(*held[1], 1, plan), InternalError);
  EXPECT_THROW(acquire({image("a", 2)}), InternalError);
}

TEST(ImageCosts, FollowTheUnitsOfTheEncoder) {
  const model::LlamaConfig config = test::uneven_vision_config();
  const auto costs = image_costs(config);
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const auto tiles = static_cast<std::int64_t>(i) + 1;
    EXPECT_EQ(costs[i].tokens, 17 * tiles);
    EXPECT_EQ(std::ssize(costs[i].unit_rows), model::num_image_units(*config.vision, {tiles, 1}));
    for (const double rows : costs[i].unit_rows) EXPECT_GT(rows, 0);
    if (i == 0) continue;
    EXPECT_GE(costs[i].unit_rows[1], costs[i - 1].unit_rows[1]) << "larger images cost more";
  }
  EXPECT_EQ(costs[2].unit_rows[1], costs[3].unit_rows[1]) << "one absent tile is computed";
  EXPECT_TRUE(image_costs(test::uneven_config())[0].unit_rows.empty());
}

}  // namespace
}  // namespace caravan::engine
