// Resize, arrangement and normalised tiles against the references named in make_images.py.

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "caravan/image/resize.h"
#include "caravan/image/tiling.h"
#include "expected_pictures.h"

namespace caravan::image {
namespace {

template <typename Value>
std::string hash_of(const std::vector<Value>& values) {
  return content_hash(std::as_bytes(std::span(values)));
}

/// As the references hand tiles to the model: scaled and normalised, rounded after each operation.
std::vector<float> normalised(const PreparedImage& image) {
  constexpr float kMean[3] = {0.48145466F, 0.4578275F, 0.40821073F};
  constexpr float kDeviation[3] = {0.26862954F, 0.26130258F, 0.27577711F};
  const auto plane = static_cast<std::size_t>(image.tile_size * image.tile_size);
  std::vector<float> values;
  for (std::size_t i = 0; i < image.tiles.size(); ++i) {
    const std::size_t channel = i / plane % 3;
    const float scaled = static_cast<float>(image.tiles[i]) / 255.0F;
    values.push_back((scaled - kMean[channel]) / kDeviation[channel]);
  }
  return values;
}

/// The picture of make_images.py: resize_case.
RgbImage pattern(std::int64_t width, std::int64_t height) {
  RgbImage image{width, height, {}};
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(width * height * 3); ++i)
    image.pixels.push_back(static_cast<std::uint8_t>((i * 2654435761U & 0xffffffffU) >> 24));
  return image;
}

TEST(Resize, EqualsPillowBitForBit) {
  const nlohmann::json cases = test::expected_pictures().at("resize");
  ASSERT_GT(cases.size(), 10U);
  for (const auto& about : cases) {
    SCOPED_TRACE(about.dump());
    const RgbImage resized =
        resize_bilinear(pattern(about.at("from").at(0), about.at("from").at(1)),
                        about.at("to").at(0), about.at("to").at(1));
    EXPECT_EQ(resized.width, about.at("to").at(0));
    EXPECT_EQ(hash_of(resized.pixels), about.at("sha256"));
  }
}

TEST(Tiles, EqualTheReferenceBitForBit) {
  TilingConfig config;
  config.tile_size = 28;
  int compared = 0;
  const nlohmann::json pictures = test::expected_pictures().at("pictures");
  for (const auto& [name, about] : pictures.items()) {
    if (!about.contains("tiles")) continue;
    SCOPED_TRACE(name);
    const nlohmann::json& tiles = about.at("tiles");
    const std::string file = test::image_data(name);
    const auto bytes = std::as_bytes(std::span(file.data(), file.size()));
    const PreparedImage prepared = prepare_image(bytes, {}, config);
    EXPECT_EQ(prepared.layout.rows, tiles.at("grid").at(0));
    EXPECT_EQ(prepared.layout.columns, tiles.at("grid").at(1));
    EXPECT_EQ(prepared.layout.aspect_ratio_id, tiles.at("id"));
    EXPECT_EQ(prepared.layout.resized_width, tiles.at("resized").at(0));
    EXPECT_EQ(prepared.layout.resized_height, tiles.at("resized").at(1));
    EXPECT_EQ(hash_of(normalised(prepared)), tiles.at("sha256"));
    EXPECT_EQ(prepared.content_hash, content_hash(bytes));
    ++compared;
  }
  EXPECT_GT(compared, 40);
}

TEST(Layouts, EqualBothReferences) {
  std::istringstream lines(test::image_data("layouts.csv"));
  std::string line;
  std::getline(lines, line);  // names of the columns
  int compared = 0;
  while (std::getline(lines, line)) {
    std::vector<std::int64_t> row;
    std::istringstream fields(line);
    for (std::string field; std::getline(fields, field, ',');) row.push_back(std::stoll(field));
    ASSERT_EQ(row.size(), 8U) << line;
    TilingConfig config;
    config.tile_size = row[0];
    const TileLayout layout = choose_layout(row[2], row[1], config);
    const std::vector<std::int64_t> got = {row[0],
                                           row[1],
                                           row[2],
                                           layout.rows,
                                           layout.columns,
                                           layout.aspect_ratio_id,
                                           layout.resized_height,
                                           layout.resized_width};
    EXPECT_EQ(got, row) << line;
    ++compared;
  }
  EXPECT_GT(compared, 1000);
}

}  // namespace
}  // namespace caravan::image
