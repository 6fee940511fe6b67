#pragma once
// The samples of a libvips image as 8-bit RGB: colour spaces, ICC profiles, 16 bit, alpha.

#include <cstdint>
#include <span>

#include "caravan/image/decode.h"
#include "vips_image.h"

namespace caravan::image {

/// A pipeline that gives the colour bands of an image (1: grey, 3: RGB, 4: CMYK without a usable
/// profile), 8 or 16 bit, and behind them its alpha if that is kept, then all in 8 bit.
struct ColourBands {
  VipsOwner image;  // null if libvips refuses
  bool has_alpha = false;
};

/// @throws InputError if the colour space or the type of the samples is not supported.
ColourBands colour_bands(VipsImage* image, Alpha alpha);

/// One row of `bands`. @param rgb  width x 3.
void row_to_rgb(const ColourBands& bands, const void* samples, std::span<std::uint8_t> rgb);

/// A sample with that opacity before white, rounded.
inline std::uint8_t over_white(std::uint8_t sample, std::uint8_t alpha) {
  return static_cast<std::uint8_t>((sample * alpha + 255 * (255 - alpha) + 127) / 255);
}

}  // namespace caravan::image
