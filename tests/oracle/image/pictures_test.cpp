// Pictures of every format against what Pillow makes of them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <span>
#include <string>

#include "caravan/image/decode.h"
#include "expected_pictures.h"
#include "support/base64.h"

namespace caravan::image {
namespace {

int largest_difference(const RgbImage& image, const std::string& expected) {
  int largest = 0;
  for (std::size_t i = 0; i < image.pixels.size(); ++i)
    largest = std::max(largest, std::abs(image.pixels[i] - static_cast<std::uint8_t>(expected[i])));
  return largest;
}

TEST(Pictures, DecodeToThePixelsOfTheReference) {
  const nlohmann::json pictures = test::expected_pictures().at("pictures");
  ASSERT_GT(pictures.size(), 75U);
  int largest = 0;
  for (const auto& [name, about] : pictures.items()) {
    SCOPED_TRACE(name);
    const std::string file = test::image_data(name);
    const RgbImage image = decode(std::as_bytes(std::span(file.data(), file.size())), {});
    EXPECT_EQ(image.width, about.at("size").at(0));
    EXPECT_EQ(image.height, about.at("size").at(1));
    const std::string expected = test::base64_decode(about.at("rgb"));
    ASSERT_EQ(image.pixels.size(), expected.size());
    const int difference = largest_difference(image, expected);
    EXPECT_LE(difference, about.value("tolerance", 0));
    largest = std::max(largest, difference);
  }
  std::cout << pictures.size() << " pictures, largest difference " << largest << " of 255\n";
}

TEST(Pictures, LieOverWhiteWhereAlphaIsAskedFor) {
  DecodeOptions options;
  options.alpha = Alpha::kWhite;
  int compared = 0;
  const nlohmann::json pictures = test::expected_pictures().at("pictures");
  for (const auto& [name, about] : pictures.items()) {
    if (!about.contains("over_white")) continue;
    SCOPED_TRACE(name);
    const std::string file = test::image_data(name);
    const RgbImage image = decode(std::as_bytes(std::span(file.data(), file.size())), options);
    const std::string expected = test::base64_decode(about.at("over_white"));
    ASSERT_EQ(image.pixels.size(), expected.size());
    EXPECT_LE(largest_difference(image, expected), about.value("tolerance", 0));
    ++compared;
  }
  EXPECT_EQ(compared, 6);
}

}  // namespace
}  // namespace caravan::image
