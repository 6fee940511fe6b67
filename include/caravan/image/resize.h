#pragma once
// Bilinear resize of 8-bit RGB with antialiasing, bit for bit as Pillow (since version 13) does it.
//
// Integer arithmetic over weights that are computed in double: the same result on every processor.
// Leaves out: to what size (tiling.h).

#include <cstdint>

#include "caravan/image/decode.h"

namespace caravan::image {

/// @param width, height  of the result, at least 1.
RgbImage resize_bilinear(RgbImage image, std::int64_t width, std::int64_t height);

}  // namespace caravan::image
