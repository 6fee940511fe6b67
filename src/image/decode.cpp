#include "caravan/image/decode.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "bmp.h"
#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "colour.h"
#include "container.h"
#include "gif.h"
#include "image_bytes.h"
#include "memory_probe.h"
#include "orientation.h"
#include "vips_image.h"

namespace caravan::image {
namespace {

// Four channels of four bytes: more than any image of the supported kinds has.
constexpr std::int64_t kMaxPixelBytes = 16;
// More than libraries take to read a header, beside the bytes themselves.
constexpr std::int64_t kHeaderBytes = std::int64_t{16} << 20;

/// An image whose header was read and accepted.
struct Opened {
  Container container = Container::kBmp;
  PixelSize size;
  std::optional<GifFrame> frame;  // of a GIF: what `image` reads
  VipsOwner image;                // null for BMP
  Alpha alpha = Alpha::kDrop;
  bool is_cut = false;  // the container shows that its end is missing
};

/// Whether the length in the header of a WebP (RIFF, little-endian) is more than there is.
bool is_cut_webp(std::span<const std::byte> bytes) {
  if (bytes.size() < 8) return true;
  constexpr std::uint64_t kBytesBefore = 8;
  return kBytesBefore + ImageBytes(Container::kWebp, bytes).u32(4) > bytes.size();
}

const char* damage(const Opened& opened) {
  return opened.is_cut ? "ends early" : "is truncated or damaged";
}

void check_header(const Opened& opened, std::int64_t file_bytes) {
  const VipsOwner& image = opened.image;
  if (!image) require_memory(kHeaderBytes + file_bytes);
  CARAVAN_CHECK(image, InputError, "the {} image {}: its header cannot be read",
                container_name(opened.container), damage(opened));
  const auto pixel_bytes = static_cast<std::int64_t>(VIPS_IMAGE_SIZEOF_PEL(image.get()));
  CARAVAN_CHECK(pixel_bytes <= kMaxPixelBytes, InputError,
                "the {} image has {} bytes per pixel: convert it to 8-bit RGB",
                container_name(opened.container), pixel_bytes);
}

Opened open(std::span<const std::byte> bytes, const DecodeOptions& options) {
  Opened opened;
  opened.alpha = options.alpha;
  opened.container = recognise(bytes);
  const auto check = [&] { check_size(opened.container, opened.size, options.max_pixels); };
  switch (opened.container) {
    case Container::kBmp:
      opened.size = bmp_size(bytes);
      check();
      return opened;
    case Container::kGif:
      opened.frame = first_frame(bytes, options.alpha);
      check_size(opened.container, opened.frame->size, options.max_pixels);
      opened.size = opened.frame->screen;
      opened.is_cut = opened.frame->is_cut;
      check();
      bytes = opened.frame->file;
      break;
    case Container::kPng:
      if (const auto size = png_size(bytes))
        check_size(opened.container, *size, options.max_pixels);
      break;
    case Container::kWebp: opened.is_cut = is_cut_webp(bytes); break;
    case Container::kJpeg:
    case Container::kTiff: break;
  }
  opened.image = open_vips(opened.container, bytes);
  check_header(opened, std::ssize(bytes));
  if (!opened.frame) opened.size = {opened.image.get()->Xsize, opened.image.get()->Ysize};
  check();
  return opened;
}

/// What the decoder of a container holds of a whole image, in bytes per pixel.
std::int64_t whole_image_bytes(Container container, VipsImage* image) {
  const auto stored = static_cast<std::int64_t>(VIPS_IMAGE_SIZEOF_PEL(image));
  const bool in_passes = vips_image_get_typeof(image, "interlaced") != 0 ||
                         vips_image_get_typeof(image, "jpeg-multiscan") != 0;
  switch (container) {
    case Container::kJpeg: return in_passes ? 2 * stored : 0;  // coefficients of two bytes
    case Container::kPng: return in_passes ? stored : 0;
    case Container::kWebp: return 12;  // the frame, the canvas, and what lossless coding refers to
    case Container::kGif: return 8;    // the frame, and the canvas
    case Container::kTiff: return 2 * stored;  // all may be one strip, twice
    case Container::kBmp: break;
  }
  return 0;
}

/// About what `decode` takes at most.
std::int64_t decode_bytes(const Opened& opened) {
  constexpr std::int64_t kRgbTwice = 6;  // as stored and upright
  const auto [width, height] = opened.size;
  if (!opened.image) return width * height * kRgbTwice;
  // Of the strips that are decoded one after the other, each step of the work holds one.
  const std::int64_t steps = opened.alpha == Alpha::kDrop ? 4 : 8;
  const auto stored = static_cast<std::int64_t>(VIPS_IMAGE_SIZEOF_PEL(opened.image.get()));
  const std::int64_t strips = steps * width * std::min<std::int64_t>(height, kStripRows) * stored;
  return width * height * (whole_image_bytes(opened.container, opened.image.get()) + kRgbTwice) +
         strips;
}

/// All pixels of the image, as they are stored.
RgbImage read_pixels(const Opened& opened) {
  VipsImage* const image = opened.image.get();
  RgbImage rgb{image->Xsize, image->Ysize, {}};
  rgb.pixels.resize(checked_cast<std::size_t>(rgb.width * rgb.height * 3));
  const auto row_bytes = static_cast<std::size_t>(rgb.width * 3);
  const ColourBands colours = colour_bands(image, opened.alpha);
  const auto convert = [&](std::int64_t row, const void* samples) {
    const auto begin = static_cast<std::size_t>(row) * row_bytes;
    row_to_rgb(colours, samples, std::span(rgb.pixels).subspan(begin, row_bytes));
  };
  std::int64_t row_failed = 0;
  if (colours.image && for_each_row(colours.image.get(), convert, &row_failed)) return rgb;
  rgb.pixels = {};
  require_memory(decode_bytes(opened));
  throw InputError(fmt::format(
      "the {} image {}: of {} x {} pixels, those from row {} on "
      "cannot be decoded",
      container_name(opened.container), damage(opened), rgb.width, rgb.height, row_failed));
}

}  // namespace

ImageHeader read_header(std::span<const std::byte> bytes, const DecodeOptions& options) {
  const Opened opened = open(bytes, options);
  ImageHeader header{opened.size.width, opened.size.height, decode_bytes(opened)};
  const bool lies =
      opened.image && !opened.frame && swaps_sides(vips_image_get_orientation(opened.image.get()));
  if (lies) std::swap(header.width, header.height);
  return header;
}

RgbImage decode(std::span<const std::byte> bytes, const DecodeOptions& options) {
  const Opened opened = open(bytes, options);
  if (!opened.image) return decode_bmp(bytes, options.alpha);
  require_memory(decode_bytes(opened));  // some libraries end the process when they get none
  RgbImage rgb = read_pixels(opened);
  if (opened.frame) return on_screen(*opened.frame, std::move(rgb));
  return upright(std::move(rgb), vips_image_get_orientation(opened.image.get()));
}

}  // namespace caravan::image
