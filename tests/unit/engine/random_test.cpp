#include "caravan/engine/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace caravan::engine {
namespace {

using Block = std::array<std::uint32_t, 4>;

// The three known answers that accompany the paper's reference implementation.
TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(UniformDraw, DependsOnSeedPromptChoiceAndPosition) {
  std::set<double> draws;
  for (const std::uint64_t seed : {0ULL, 1ULL, 1ULL << 32, ~0ULL}) {
    for (std::int64_t prompt = 0; prompt < 3; ++prompt) {
      for (std::int64_t choice = 0; choice < 3; ++choice) {
        for (std::int64_t position = 0; position < 50; ++position) {
          const double draw = uniform_draw(seed, {prompt, choice, position});
          EXPECT_EQ(draw, uniform_draw(seed, {prompt, choice, position}));
          EXPECT_GE(draw, 0.0);
          EXPECT_LT(draw, 1.0);
          draws.insert(draw);
        }
      }
    }
  }
  EXPECT_EQ(draws.size(), 4U * 3U * 3U * 50U);
}

// Answers of a version must stay what they are; the words are those of the cipher.
TEST(UniformDraw, OfTheFirstPromptHasTheChoiceAndThePositionAsCounter) {
  const Block bits = philox4x32({5, 0, 2, 0}, {7, 0});
  const std::uint64_t word = (std::uint64_t{bits[1]} << 32) | bits[0];
  EXPECT_EQ(uniform_draw(7, {.prompt = 0, .choice = 2, .position = 5}),
            static_cast<double>(word >> 11) * 0x1p-53);
}

// Chi-square over 64 cells: 63 degrees of freedom, 0.1 % quantile on each side is 32.5 and 103.4.
TEST(UniformDraw, FillsCellsEvenlyAlongEachCoordinate) {
  constexpr int kCells = 64;
  constexpr std::int64_t kDraws = 64000;
  for (int coordinate = 0; coordinate < 4; ++coordinate) {
    std::vector<std::int64_t> hits(kCells, 0);
    for (std::int64_t i = 0; i < kDraws; ++i) {
      const double draw = coordinate == 0   ? uniform_draw(static_cast<std::uint64_t>(i), {})
                          : coordinate == 1 ? uniform_draw(7, {.prompt = i})
                          : coordinate == 2 ? uniform_draw(7, {.choice = i})
                                            : uniform_draw(7, {.position = i});
      ++hits[static_cast<std::size_t>(draw * kCells)];
    }
    const double expected = static_cast<double>(kDraws) / kCells;
    double chi_square = 0;
    for (const std::int64_t hit : hits) {
      const double difference = static_cast<double>(hit) - expected;
      chi_square += difference * difference / expected;
    }
    EXPECT_GT(chi_square, 32.5) << "coordinate " << coordinate;
    EXPECT_LT(chi_square, 103.4) << "coordinate " << coordinate;
  }
}

}  // namespace
}  // namespace caravan::engine
