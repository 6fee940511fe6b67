#pragma once
// GIF: the stored colours of transparent pixels.

#include <cstddef>
#include <span>
#include <vector>

namespace caravan::image {

/// A copy whose first frame has no transparent colour. The decoder gives transparent pixels as
/// black; the references drop alpha and keep the colour of the palette.
std::vector<std::byte> without_transparency(std::span<const std::byte> gif);

}  // namespace caravan::image
