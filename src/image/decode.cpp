#include "caravan/image/decode.h"

#include <utility>

#include "bmp.h"
#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "colour.h"
#include "container.h"
#include "gif.h"
#include "orientation.h"
#include "vips_image.h"

namespace caravan::image {
namespace {

// Four channels of four bytes: more than any image of the supported kinds has.
constexpr std::int64_t kMaxPixelBytes = 16;

/// An image whose header was read and accepted.
struct Opened {
  Container container = Container::kBmp;
  PixelSize size;
  std::vector<std::byte> own_bytes;  // of a changed copy, which `image` reads
  VipsOwner image;                   // null for BMP
};

Opened open(std::span<const std::byte> bytes, const DecodeLimits& limits) {
  Opened opened;
  opened.container = recognise(bytes);
  if (opened.container == Container::kBmp) {
    opened.size = bmp_size(bytes);
  } else {
    if (const auto size = png_size(bytes); size && opened.container == Container::kPng)
      check_size(Container::kPng, *size, limits.max_pixels);
    if (opened.container == Container::kGif) {
      opened.own_bytes = without_transparency(bytes);
      bytes = opened.own_bytes;
    }
    opened.image = open_vips(opened.container, bytes);
    CARAVAN_CHECK(opened.image, InputError,
                  "the {} image is truncated or damaged: its header cannot be read",
                  container_name(opened.container));
    opened.size = {opened.image.get()->Xsize, opened.image.get()->Ysize};
    const auto pixel_bytes = static_cast<std::int64_t>(VIPS_IMAGE_SIZEOF_PEL(opened.image.get()));
    CARAVAN_CHECK(pixel_bytes <= kMaxPixelBytes, InputError,
                  "the {} image has {} bytes per pixel: convert it to 8-bit RGB",
                  container_name(opened.container), pixel_bytes);
  }
  check_size(opened.container, opened.size, limits.max_pixels);
  return opened;
}

}  // namespace

std::int64_t decode_bytes(std::span<const std::byte> bytes, const DecodeLimits& limits) {
  const Opened opened = open(bytes, limits);
  const std::int64_t decoder_bytes =
      opened.image ? static_cast<std::int64_t>(VIPS_IMAGE_SIZEOF_PEL(opened.image.get())) : 1;
  constexpr std::int64_t kRgbTwice = 6;  // as stored and upright
  return opened.size.width * opened.size.height * (decoder_bytes + kRgbTwice);
}

RgbImage decode(std::span<const std::byte> bytes, const DecodeLimits& limits) {
  const Opened opened = open(bytes, limits);
  if (!opened.image) return decode_bmp(bytes);
  RgbImage rgb{opened.size.width, opened.size.height, {}};
  rgb.pixels.resize(checked_cast<std::size_t>(rgb.width * rgb.height * 3));
  const VipsOwner colours = colour_bands(opened.image.get());
  const auto row_bytes = static_cast<std::size_t>(rgb.width * 3);
  std::int64_t row_failed = 0;
  const bool is_whole =
      colours &&
      for_each_row(
          colours.get(),
          [&](std::int64_t row, const void* samples) {
            const auto begin = static_cast<std::size_t>(row) * row_bytes;
            row_to_rgb(colours.get(), samples, std::span(rgb.pixels).subspan(begin, row_bytes));
          },
          &row_failed);
  CARAVAN_CHECK(is_whole, InputError,
                "the {} image is truncated or damaged: of {} x {} pixels, those from row {} on "
                "cannot be decoded",
                container_name(opened.container), rgb.width, rgb.height, row_failed);
  return upright(std::move(rgb), vips_image_get_orientation(opened.image.get()));
}

}  // namespace caravan::image
