#pragma once
// The samples of a libvips image as 8-bit RGB: colour spaces, ICC profiles, 16 bit, alpha.

#include <cstdint>
#include <span>

#include "vips_image.h"

namespace caravan::image {

/// A pipeline that gives `image` with its colour bands only (1: grey, 3: RGB, 4: CMYK without a
/// usable profile), 8 or 16 bit. Null if libvips refuses.
/// @throws InputError if the colour space or the type of the samples is not supported.
VipsOwner colour_bands(VipsImage* image);

/// One row of `colour_bands`. @param rgb  width x 3.
void row_to_rgb(const VipsImage* image, const void* samples, std::span<std::uint8_t> rgb);

}  // namespace caravan::image
