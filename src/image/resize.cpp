#include "caravan/image/resize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"

namespace caravan::image {
namespace {

constexpr int kFractionBits = 22;
constexpr std::int32_t kHalf = std::int32_t{1} << (kFractionBits - 1);

/// Which inputs an output is made of, and with which weights.
struct Taps {
  std::int64_t first = 0;
  std::vector<std::int32_t> weights;  // fixed point, sum about 1
};

// The triangle filter of Pillow (Resample.c), one side of the picture at a time. Every operation
// in this order: the results are compared bit for bit.
std::vector<Taps> triangle_taps(std::int64_t in_size, std::int64_t out_size) {
  const double scale = static_cast<double>(in_size) / static_cast<double>(out_size);
  const double support = std::max(scale, 1.0);
  const double per_support = 1.0 / support;
  std::vector<Taps> all(checked_cast<std::size_t>(out_size));
  std::vector<double> weights;
  for (std::int64_t out = 0; out < out_size; ++out) {
    const double center = (static_cast<double>(out) + 0.5) * scale;
    const auto begin = std::max<std::int64_t>(0, static_cast<std::int64_t>(center - support + 0.5));
    const auto end = std::min(in_size, static_cast<std::int64_t>(center + support + 0.5));
    weights.clear();
    double sum = 0.0;
    for (std::int64_t in = begin; in < end; ++in) {
      const double distance = std::abs((static_cast<double>(in) - center + 0.5) * per_support);
      weights.push_back(distance < 1.0 ? 1.0 - distance : 0.0);
      sum += weights.back();
    }
    Taps& taps = all[static_cast<std::size_t>(out)];
    taps.first = begin;
    for (const double weight : weights) {
      const double fixed = (sum != 0.0 ? weight / sum : weight) * (1 << kFractionBits);
      taps.weights.push_back(static_cast<std::int32_t>(fixed + 0.5));  // weights are not negative
    }
  }
  return all;
}

std::uint8_t to_byte(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kFractionBits, 0, 255));
}

RgbImage resize_width(const RgbImage& image, std::int64_t width) {
  const std::vector<Taps> all = triangle_taps(image.width, width);
  RgbImage result{width, image.height, {}};
  result.pixels.resize(checked_cast<std::size_t>(width * image.height * 3));
  std::uint8_t* out = result.pixels.data();
  for (std::int64_t row = 0; row < image.height; ++row) {
    const std::uint8_t* const in_row = image.pixels.data() + row * image.width * 3;
    for (const Taps& taps : all) {
      std::int32_t red = kHalf;
      std::int32_t green = kHalf;
      std::int32_t blue = kHalf;
      const std::uint8_t* in = in_row + taps.first * 3;
      for (const std::int32_t weight : taps.weights) {
        red += weight * in[0];
        green += weight * in[1];
        blue += weight * in[2];
        in += 3;
      }
      *out++ = to_byte(red);
      *out++ = to_byte(green);
      *out++ = to_byte(blue);
    }
  }
  return result;
}

RgbImage resize_height(const RgbImage& image, std::int64_t height) {
  const std::vector<Taps> all = triangle_taps(image.height, height);
  const std::int64_t row_values = image.width * 3;
  RgbImage result{image.width, height, {}};
  result.pixels.resize(checked_cast<std::size_t>(row_values * height));
  std::vector<std::int32_t> sums(static_cast<std::size_t>(row_values));
  std::uint8_t* out = result.pixels.data();
  for (const Taps& taps : all) {
    std::fill(sums.begin(), sums.end(), kHalf);
    const std::uint8_t* in = image.pixels.data() + taps.first * row_values;
    for (const std::int32_t weight : taps.weights) {
      for (std::int64_t i = 0; i < row_values; ++i)
        sums[static_cast<std::size_t>(i)] += weight * in[i];
      in += row_values;
    }
    for (const std::int32_t sum : sums) *out++ = to_byte(sum);
  }
  return result;
}

/// Pillow since version 13: the height first where it loses more than twice as many rows as the
/// width loses columns. Before, the width always was; results differ by a step here and there.
bool is_height_first(const RgbImage& image, std::int64_t width, std::int64_t height) {
  return height < image.height && image.height - height > 2 * (image.width - width);
}

}  // namespace

RgbImage resize_bilinear(RgbImage image, std::int64_t width, std::int64_t height) {
  CARAVAN_ASSERT(width > 0 && height > 0 && image.width > 0 && image.height > 0,
                 "resize of {} x {} to {} x {}", image.width, image.height, width, height);
  // Each pass rounds to 8 bits, so that their order shows; a side that stays is not touched.
  const bool height_first = is_height_first(image, width, height);
  if (!height_first && image.width != width) image = resize_width(image, width);
  if (image.height != height) image = resize_height(image, height);
  if (image.width != width) image = resize_width(image, width);
  return image;
}

}  // namespace caravan::image
