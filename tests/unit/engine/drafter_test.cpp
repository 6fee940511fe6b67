#include "caravan/engine/drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace caravan::engine {
namespace {

using Tokens = std::vector<std::int32_t>;

Tokens propose(Drafter& drafter, const Tokens& prompt, const Tokens& generated, std::int64_t most,
               std::int64_t num_tokens = 1000) {
  Tokens drafts{7, 7, 7};  // of an earlier call
  drafter.propose({prompt, generated}, most, num_tokens, drafts);
  return drafts;
}

/// A drafter that guesses up to eight tokens.
Drafter sure_drafter() {
  Drafter drafter;
  drafter.settle(2, 2);
  drafter.settle(4, 4);
  return drafter;
}

TEST(Drafter, GoesOnAsTheTextDidBefore) {
  Drafter drafter = sure_drafter();
  EXPECT_EQ(propose(drafter, {1, 2, 3, 4, 5, 6, 7, 2, 3}, {}, 3), (Tokens{4, 5, 6}));
}

TEST(Drafter, PrefersTheLongestMatchAndThenTheLatest) {
  Drafter drafter = sure_drafter();
  // 3 4 was followed by 5, by 6 and by 8; 2 3 4 by 5 and by 6; 1 2 3 4 by 5 alone.
  const Tokens text{1, 2, 3, 4, 5, 9, 2, 3, 4, 6, 9, 3, 4, 8};
  EXPECT_EQ(propose(drafter, text, {1, 2, 3, 4}, 1), Tokens{5});
  Drafter other = sure_drafter();
  EXPECT_EQ(propose(other, text, {0, 2, 3, 4}, 1), Tokens{6});
  Drafter third = sure_drafter();
  EXPECT_EQ(propose(third, text, {0, 0, 3, 4}, 1), Tokens{8});
}

TEST(Drafter, HasNothingToSayAboutNewText) {
  Drafter drafter;
  EXPECT_TRUE(propose(drafter, {1}, {}, 4).empty());
  EXPECT_TRUE(propose(drafter, {1}, {2, 3, 4}, 4).empty());
  EXPECT_TRUE(propose(drafter, {1}, {2, 3, 4, 3}, 4).empty()) << "one token is not enough";
}

TEST(Drafter, RepeatsAShortPeriod) {
  Drafter drafter = sure_drafter();
  EXPECT_EQ(propose(drafter, {5, 6, 5, 6}, {5}, 6), (Tokens{6, 5, 6, 5, 6, 5}));
}

TEST(Drafter, EndsBeforeTokensThatAreNeverGenerated) {
  Drafter drafter = sure_drafter();
  EXPECT_EQ(propose(drafter, {1, 2, 3, 50, 4, 1, 2}, {}, 4, 50), Tokens{3});
}

TEST(Drafter, GuessesMoreWhenGuessesComeTrueAndFewerOtherwise) {
  Drafter drafter;
  const Tokens text(40, 1);
  EXPECT_EQ(propose(drafter, text, {}, 8).size(), 2U);
  drafter.settle(2, 2);
  EXPECT_EQ(propose(drafter, text, {}, 8).size(), 4U);
  drafter.settle(4, 4);
  EXPECT_EQ(propose(drafter, text, {}, 8).size(), 8U);
  drafter.settle(8, 3);
  EXPECT_EQ(propose(drafter, text, {}, 8).size(), 3U);
  drafter.settle(3, 0);
  EXPECT_EQ(propose(drafter, text, {}, 8).size(), 1U);
}

TEST(Drafter, PausesLongerAndLongerWhenNothingComesTrue) {
  Drafter drafter;
  const Tokens text(40, 1);
  const auto proposals_until_pause_ends = [&] {
    std::int64_t count = 1;
    while (propose(drafter, text, {}, 8).empty()) ++count;
    return count;
  };
  drafter.settle(2, 0);
  EXPECT_EQ(proposals_until_pause_ends(), 1);
  std::vector<std::int64_t> waits;
  for (int i = 0; i < 7; ++i) {
    drafter.settle(1, 0);
    waits.push_back(proposals_until_pause_ends() - 1);
  }
  EXPECT_EQ(waits, (std::vector<std::int64_t>{4, 8, 16, 32, 64, 64, 64}));
  drafter.settle(1, 1);
  drafter.settle(1, 0);
  EXPECT_EQ(proposals_until_pause_ends(), 1) << "a hit makes good for the misses";
}

/// The latest earlier end of the longest of the n-grams that end the text.
Tokens propose_by_search(const Tokens& text, std::int64_t most) {
  for (const std::int64_t size : {4, 3, 2}) {
    for (std::int64_t end = std::ssize(text) - 1; end >= size; --end) {
      if (!std::equal(text.begin() + (end - size), text.begin() + end, text.end() - size)) continue;
      Tokens drafts;
      Tokens longer = text;
      for (std::int64_t i = 0; i < most; ++i) {
        drafts.push_back(longer[static_cast<std::size_t>(end + i)]);
        longer.push_back(drafts.back());
      }
      return drafts;
    }
  }
  return {};
}

TEST(DrafterProperty, FindsWhatASearchFinds) {
  std::int64_t found = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    Tokens prompt(1 + random() % 20);
    for (std::int32_t& token : prompt) token = static_cast<std::int32_t>(random() % 6);
    Tokens generated;
    Tokens text = prompt;
    Drafter drafter = sure_drafter();
    for (int step = 0; step < 80; ++step) {
      const std::int64_t most = 1 + static_cast<std::int64_t>(random() % 6);
      const Tokens expected = propose_by_search(text, most);
      ASSERT_EQ(propose(drafter, prompt, generated, most), expected);
      found += expected.empty() ? 0 : 1;
      for (std::uint64_t i = random() % 3; i > 0; --i) {
        generated.push_back(static_cast<std::int32_t>(random() % 6));
        text.push_back(generated.back());
      }
    }
  }
  EXPECT_GT(found, 1000);
}

}  // namespace
}  // namespace caravan::engine
