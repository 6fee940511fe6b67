#pragma once
// Image files to 8-bit RGB: JPEG, PNG, WebP, GIF and TIFF by libvips, BMP by own code. The content
// decides what a file is, never its name.
//
// What comes out is what Pillow's `exif_transpose(image).convert("RGB")` gives, which the reference
// implementations of the models use, except for colour profiles and 16-bit grey:
//   first frame or page only; EXIF orientation applied; grey repeated; palettes resolved; alpha
//   dropped (the stored colour stays) or, as transformers' `convert_to_rgb` does, laid over white;
//   of 16-bit samples the high byte; CMYK without a profile as (255 - C)(255 - K) / 255; an
//   embedded ICC profile is applied if it changes colours visibly.
// Leaves out: where the bytes come from (image_source.h), what a model needs (tiling.h).

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace caravan::image {

/// What becomes of transparency: the stored colour stays, or shows before white.
enum class Alpha { kDrop, kWhite };

struct DecodeOptions {
  std::int64_t max_pixels = 100'000'000;  // checked from the header, before pixels are decoded
  Alpha alpha = Alpha::kDrop;
};

struct RgbImage {
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::vector<std::uint8_t> pixels;  // [height, width, 3]
};

/// What the header of an image says.
struct ImageHeader {
  std::int64_t width = 0;  // as `decode` gives it: upright
  std::int64_t height = 0;
  std::int64_t decode_bytes = 0;  // how much memory `decode` takes at most, to a few MiB
};

/// Decodes no pixels. @throws as `decode` does, for what the header shows.
ImageHeader read_header(std::span<const std::byte> bytes, const DecodeOptions& options);

/// Same bytes, same pixels, on every machine with the same libraries. Safe to call from several
/// threads at once; each call works in its own thread only.
/// @throws InputError if the bytes are no image of a known format, too large, truncated or damaged;
///         std::bad_alloc if the memory is not there.
RgbImage decode(std::span<const std::byte> bytes, const DecodeOptions& options);

}  // namespace caravan::image
