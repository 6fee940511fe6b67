#include "caravan/image/tiling.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "caravan/core/error.h"
#include "support/expect_error.h"

namespace caravan::image {
namespace {

TilingConfig small_tiles(std::int64_t tile_size) {
  TilingConfig config;
  config.tile_size = tile_size;
  return config;
}

RgbImage plain(std::int64_t width, std::int64_t height, std::uint8_t value) {
  return {width, height,
          std::vector<std::uint8_t>(static_cast<std::size_t>(width * height * 3), value)};
}

TEST(ChooseLayout, NumbersArrangementsInLexicographicOrder) {
  const TilingConfig config = small_tiles(10);
  const std::int64_t sizes[][2] = {{10, 10}, {20, 10}, {30, 10}, {40, 10},
                                   {10, 20}, {20, 20}, {10, 30}, {10, 40}};
  std::int64_t id = 0;
  for (const auto& [width, height] : sizes) {
    const TileLayout layout = choose_layout(width, height, config);
    EXPECT_EQ(layout.aspect_ratio_id, ++id);
    EXPECT_EQ(layout.columns * 10, width);
    EXPECT_EQ(layout.rows * 10, height);
    EXPECT_EQ(layout.resized_width, width);
    EXPECT_EQ(layout.resized_height, height);
  }
}

TEST(ChooseLayout, KeepsAtLeastOnePixel) {
  const TileLayout layout = choose_layout(100000, 1, small_tiles(56));
  EXPECT_EQ(layout.resized_height, 1);
  EXPECT_EQ(layout.resized_width, 224);
  EXPECT_EQ(choose_layout(1, 100000, small_tiles(56)).resized_width, 1);
}

TEST(ChooseLayout, FollowsTheNumberOfTiles) {
  TilingConfig config = small_tiles(10);
  config.max_tiles = 1;
  EXPECT_EQ(choose_layout(40, 10, config).num_tiles(), 1);
  config.max_tiles = 6;
  const TileLayout layout = choose_layout(30, 20, config);
  EXPECT_EQ(layout.columns, 3);
  EXPECT_EQ(layout.rows, 2);
  EXPECT_EQ(layout.aspect_ratio_id, 9);  // behind (1, 1) to (1, 6), (2, 1) and (2, 2)
}

TEST(WriteTiles, CutsRowByRowAndPadsWithBlack) {
  const TilingConfig config = small_tiles(2);
  RgbImage image = plain(4, 3, 0);  // canvas of 4 x 4
  for (std::size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = static_cast<std::uint8_t>(100 + i);
  const TileLayout layout = choose_layout(4, 3, config);
  ASSERT_EQ(layout.num_tiles(), 4);
  ASSERT_EQ(layout.resized_height, 3);
  std::vector<std::uint8_t> tiles(48, 77);
  write_tiles(image, layout, config, tiles);
  const auto value = [&](std::size_t tile, std::size_t c, std::size_t y, std::size_t x) {
    return tiles[((tile * 3 + c) * 2 + y) * 2 + x];
  };
  const auto stored = [](std::size_t x, std::size_t y, std::size_t c) {
    return 100 + (y * 4 + x) * 3 + c;
  };
  for (std::size_t c = 0; c < 3; ++c) {
    EXPECT_EQ(value(0, c, 0, 1), stored(1, 0, c));
    EXPECT_EQ(value(1, c, 1, 0), stored(2, 1, c));
    EXPECT_EQ(value(2, c, 0, 1), stored(1, 2, c));
    EXPECT_EQ(value(3, c, 0, 1), stored(3, 2, c));
    EXPECT_EQ(value(2, c, 1, 1), 0);  // below the picture
    EXPECT_EQ(value(3, c, 1, 0), 0);
  }
}

TEST(CheckTiling, ListsEveryFault) {
  TilingConfig config;
  check(config);
  config.tile_size = 0;
  config.max_tiles = 100;
  for (const char* words : {"image size 0", "100 tiles"})
    test::expect_error<ConfigError>([&] { check(config); }, words);
}

}  // namespace
}  // namespace caravan::image
