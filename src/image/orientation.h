#pragma once
// The eight EXIF orientations.

#include "caravan/image/decode.h"

namespace caravan::image {

/// The picture as it is meant to be seen. @param orientation  1 to 8 (EXIF tag 0x0112).
RgbImage upright(RgbImage image, int orientation);

/// Whether width and height change places.
inline bool swaps_sides(int orientation) { return orientation >= 5; }

}  // namespace caravan::image
