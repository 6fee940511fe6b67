#include "orientation.h"

#include <utility>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"

namespace caravan::image {

RgbImage upright(RgbImage image, int orientation) {
  CARAVAN_ASSERT(orientation >= 1 && orientation <= 8, "orientation {}", orientation);
  if (orientation == 1) return image;
  const bool is_transposed = swaps_sides(orientation);
  const bool from_right =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  RgbImage result;
  result.width = is_transposed ? image.height : image.width;
  result.height = is_transposed ? image.width : image.height;
  result.pixels.resize(image.pixels.size());
  std::size_t out = 0;
  for (std::int64_t row = 0; row < result.height; ++row) {
    for (std::int64_t column = 0; column < result.width; ++column) {
      std::int64_t x = is_transposed ? row : column;
      std::int64_t y = is_transposed ? column : row;
      if (from_right) x = image.width - 1 - x;
      if (from_bottom) y = image.height - 1 - y;
      const auto in = static_cast<std::size_t>((y * image.width + x) * 3);
      for (std::size_t c = 0; c < 3; ++c) result.pixels[out++] = image.pixels[in + c];
    }
  }
  return result;
}

}  // namespace caravan::image
