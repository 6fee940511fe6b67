#include "caravan/image/decode.h"

#include <optional>
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
  std::optional<GifFrame> frame;  // of a GIF: what `image` reads
  VipsOwner image;                // null for BMP
};

void check_header(Container container, const VipsOwner& image) {
  CARAVAN_CHECK(image, InputError,
                "the {} image is truncated or damaged: its header cannot be read",
                container_name(container));
  const auto pixel_bytes = static_cast<std::int64_t>(VIPS_IMAGE_SIZEOF_PEL(image.get()));
  CARAVAN_CHECK(pixel_bytes <= kMaxPixelBytes, InputError,
                "the {} image has {} bytes per pixel: convert it to 8-bit RGB",
                container_name(container), pixel_bytes);
}

Opened open(std::span<const std::byte> bytes, const DecodeLimits& limits) {
  Opened opened;
  opened.container = recognise(bytes);
  const auto check = [&] { check_size(opened.container, opened.size, limits.max_pixels); };
  switch (opened.container) {
    case Container::kBmp:
      opened.size = bmp_size(bytes);
      check();
      return opened;
    case Container::kGif:
      opened.frame = first_frame(bytes);
      check_size(opened.container, opened.frame->size, limits.max_pixels);
      opened.size = opened.frame->screen;
      check();
      bytes = opened.frame->file;
      break;
    case Container::kPng:
      if (const auto size = png_size(bytes)) check_size(opened.container, *size, limits.max_pixels);
      break;
    case Container::kJpeg:
    case Container::kWebp:
    case Container::kTiff: break;
  }
  opened.image = open_vips(opened.container, bytes);
  check_header(opened.container, opened.image);
  if (!opened.frame) opened.size = {opened.image.get()->Xsize, opened.image.get()->Ysize};
  check();
  return opened;
}

/// All pixels of `image`, as they are stored.
RgbImage read_pixels(Container container, VipsImage* image) {
  RgbImage rgb{image->Xsize, image->Ysize, {}};
  rgb.pixels.resize(checked_cast<std::size_t>(rgb.width * rgb.height * 3));
  const auto row_bytes = static_cast<std::size_t>(rgb.width * 3);
  const VipsOwner colours = colour_bands(image);
  const auto convert = [&](std::int64_t row, const void* samples) {
    const auto begin = static_cast<std::size_t>(row) * row_bytes;
    row_to_rgb(colours.get(), samples, std::span(rgb.pixels).subspan(begin, row_bytes));
  };
  std::int64_t row_failed = 0;
  CARAVAN_CHECK(colours && for_each_row(colours.get(), convert, &row_failed), InputError,
                "the {} image is truncated or damaged: of {} x {} pixels, those from row {} on "
                "cannot be decoded",
                container_name(container), rgb.width, rgb.height, row_failed);
  return rgb;
}

}  // namespace

ImageHeader read_header(std::span<const std::byte> bytes, const DecodeLimits& limits) {
  const Opened opened = open(bytes, limits);
  ImageHeader header{opened.size.width, opened.size.height, 0};
  std::int64_t decoder_bytes = 1;
  if (opened.image) {
    decoder_bytes = static_cast<std::int64_t>(VIPS_IMAGE_SIZEOF_PEL(opened.image.get()));
    const bool lies = !opened.frame && swaps_sides(vips_image_get_orientation(opened.image.get()));
    if (lies) std::swap(header.width, header.height);
  }
  constexpr std::int64_t kRgbTwice = 6;  // as stored and upright
  header.decode_bytes = header.width * header.height * (decoder_bytes + kRgbTwice);
  return header;
}

RgbImage decode(std::span<const std::byte> bytes, const DecodeLimits& limits) {
  const Opened opened = open(bytes, limits);
  if (!opened.image) return decode_bmp(bytes);
  RgbImage rgb = read_pixels(opened.container, opened.image.get());
  if (opened.frame) return on_screen(*opened.frame, std::move(rgb));
  return upright(std::move(rgb), vips_image_get_orientation(opened.image.get()));
}

}  // namespace caravan::image
