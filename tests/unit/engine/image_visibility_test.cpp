#include "caravan/engine/image_visibility.h"

#include <gtest/gtest.h>

#include <random>

namespace caravan::engine {
namespace {

constexpr std::int32_t kImage = 9;

/// Images that a position sees, straight from the rule: a token sees image i from its image token
/// on until the first image token of a later group.
std::vector<std::int64_t> seen_by_rule(const std::vector<std::int32_t>& prompt,
                                       std::int64_t position) {
  const auto is_image = [&](std::int64_t at) {
    return at < std::ssize(prompt) && prompt[static_cast<std::size_t>(at)] == kImage;
  };
  std::vector<std::int64_t> seen;
  std::int64_t image = -1;
  for (std::int64_t at = 0; at <= position; ++at) {
    if (!is_image(at)) continue;
    ++image;
    if (at > 0 && !is_image(at - 1)) seen.clear();
    seen.push_back(image);
  }
  return seen;
}

std::vector<std::int64_t> seen_by_spans(const ImageVisibility& visibility, std::int64_t position) {
  const Range images = visibility.span_at(position).images;
  std::vector<std::int64_t> seen;
  for (std::int64_t image = images.begin; image < images.end; ++image) seen.push_back(image);
  return seen;
}

TEST(ImageVisibility, FollowsTheRuleForAnyPrompt) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::int32_t> prompt(1 + random() % 30, 1);
    for (std::int32_t& token : prompt) token = random() % 3 == 0 ? kImage : 1;
    const ImageVisibility visibility(prompt, kImage);
    for (std::int64_t position = 0; position < std::ssize(prompt) + 5;) {
      const std::int64_t end = visibility.span_at(position).end;
      ASSERT_GT(end, position);
      for (; position < std::min(end, std::ssize(prompt) + 5); ++position) {
        EXPECT_EQ(seen_by_spans(visibility, position), seen_by_rule(prompt, position))
            << "position " << position;
      }
    }
  }
}

TEST(ImageVisibility, FindsTheGroupsOfTwoAdjacentImagesAndOneLater) {
  std::vector<std::int32_t> prompt(25, 1);
  prompt[5] = prompt[6] = prompt[20] = kImage;
  const ImageVisibility visibility(prompt, kImage);
  ASSERT_EQ(visibility.groups().size(), 2U);
  EXPECT_EQ(visibility.groups()[0].images, (Range{0, 2}));
  EXPECT_EQ(visibility.groups()[0].positions, (Range{5, 20}));
  EXPECT_EQ(visibility.groups()[1].positions.begin, 20);
  EXPECT_EQ(visibility.group_at(4), 2U) << "none";
  EXPECT_EQ(visibility.group_at(1'000'000), 1U);
  EXPECT_EQ(visibility.span_at(0).end, 5);
  EXPECT_EQ(visibility.marker(2), 20);
  EXPECT_EQ(visibility.images_at({0, 5}), (Range{0, 0}));
  EXPECT_EQ(visibility.images_at({6, 21}), (Range{1, 3}));
  EXPECT_TRUE(visibility.images_at({21, 40}).empty());
}

TEST(ImageVisibility, OfTextIsEmpty) {
  const ImageVisibility visibility(std::vector<std::int32_t>{1, 2, 3}, kImage);
  EXPECT_EQ(visibility.num_images(), 0);
  EXPECT_TRUE(visibility.span_at(2).images.empty());
}

}  // namespace
}  // namespace caravan::engine
