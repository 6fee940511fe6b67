#pragma once
// BMP by own code: libvips leaves it to ImageMagick, which is not a decoder for foreign bytes.
//
// Windows and OS/2 headers; 1, 4, 8 bit palettes (also run-length coded), 16, 24 and 32 bit, with
// or without bit masks, from the bottom or from the top.

#include <cstddef>
#include <span>

#include "caravan/image/decode.h"
#include "container.h"

namespace caravan::image {

/// From the header alone. @throws InputError if it is cut short or of an unknown form.
PixelSize bmp_size(std::span<const std::byte> bytes);

/// @throws InputError if the file is truncated, damaged or of an unknown form.
RgbImage decode_bmp(std::span<const std::byte> bytes, Alpha alpha);

}  // namespace caravan::image
