// Files to tiles against the reference (tests/data/images/reference): bit for bit where the format
// is exact, and within two steps of 255 where decoders may differ.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "caravan/image/tiling.h"
#include "support/temporary_folder.h"

namespace caravan::image {
namespace {

const std::string kFolder = std::string(CARAVAN_TEST_DATA) + "/images/reference/";

PreparedImage prepared(const std::string& name, std::int64_t tile_size) {
  const std::string file = test::read_whole(kFolder + name);
  TilingConfig config;
  config.tile_size = tile_size;
  return prepare_image(std::as_bytes(std::span(file)), {}, config);
}

/// The canvas that was cut, row by row with its colours side by side.
std::vector<std::uint8_t> canvas(const PreparedImage& image) {
  const std::int64_t side = image.tile_size;
  std::vector<std::uint8_t> pixels;
  pixels.reserve(image.tiles.size());
  for (std::int64_t y = 0; y < image.layout.rows * side; ++y) {
    for (std::int64_t x = 0; x < image.layout.columns * side; ++x) {
      const std::int64_t tile = y / side * image.layout.columns + x / side;
      for (std::int64_t channel = 0; channel < 3; ++channel) {
        const std::int64_t at = ((tile * 3 + channel) * side + y % side) * side + x % side;
        pixels.push_back(image.tiles[static_cast<std::size_t>(at)]);
      }
    }
  }
  return pixels;
}

TEST(ReferencePictures, OfExactFormatsGiveTheSameCanvases) {
  const auto pictures = nlohmann::json::parse(test::read_whole(kFolder + "canvases.json"));
  for (const auto& [name, sizes] : pictures.items()) {
    for (const std::int64_t size : {560, 448, 56}) {
      SCOPED_TRACE(name + " in tiles of " + std::to_string(size));
      const nlohmann::json& expected = sizes.at("T" + std::to_string(size));
      const PreparedImage image = prepared(name, size);
      const nlohmann::json layout = {
          {"grid_hw", {image.layout.rows, image.layout.columns}},
          {"aspect_ratio_id", image.layout.aspect_ratio_id},
          {"resized_hw", {image.layout.resized_height, image.layout.resized_width}}};
      for (const auto& [key, value] : layout.items()) EXPECT_EQ(value, expected.at(key)) << key;
      const std::vector<std::uint8_t> pixels = canvas(image);
      EXPECT_EQ(content_hash(std::as_bytes(std::span(pixels))), expected.at("canvas_u8_sha256"));
    }
  }
  EXPECT_GE(pictures.size(), 45U);
}

TEST(ReferencePictures, WithTransparencyLieOverWhiteWhereThatIsAskedFor) {
  const auto pictures = nlohmann::json::parse(test::read_whole(kFolder + "over_white.json"));
  ASSERT_GE(pictures.size(), 7U);
  DecodeOptions options;
  options.alpha = Alpha::kWhite;
  for (const auto& [name, expected] : pictures.items()) {
    SCOPED_TRACE(name);
    const std::string file = test::read_whole(kFolder + name);
    const RgbImage image = decode(std::as_bytes(std::span(file)), options);
    EXPECT_EQ(content_hash(std::as_bytes(std::span(image.pixels))), expected);
    const RgbImage dropped = decode(std::as_bytes(std::span(file)), {});
    EXPECT_NE(image.pixels, dropped.pixels);
  }
}

TEST(ReferencePictures, OfLossyFormatsGiveTheSameTilesWithinTwoSteps) {
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() != ".tiles") continue;
    const std::string name = entry.path().stem().string();
    SCOPED_TRACE(name);
    const std::string expected = test::read_whole(entry.path());
    const PreparedImage image = prepared(name, 56);
    ASSERT_EQ(image.tiles.size(), expected.size());
    int largest = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      largest =
          std::max(largest, std::abs(static_cast<int>(image.tiles[i]) -
                                     static_cast<int>(static_cast<unsigned char>(expected[i]))));
    }
    EXPECT_LE(largest, 2);
    ++compared;
  }
  EXPECT_EQ(compared, 7);
}

}  // namespace
}  // namespace caravan::image
