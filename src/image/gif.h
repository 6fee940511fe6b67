#pragma once
// The first frame of a GIF as a file of its own, and its place on the screen.
//
// The decoder takes the screen's size from the frames of some files and makes transparent pixels
// black. The references take the screen as it is said, keep the stored colour of transparent
// pixels and fill what the frame leaves free with a colour of its palette.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "caravan/image/decode.h"
#include "container.h"

namespace caravan::image {

struct GifFrame {
  std::vector<std::byte> file;  // a GIF with this frame alone, without transparency or place
  PixelSize screen;             // grown to hold the frame
  PixelSize size;
  std::int64_t left = 0;
  std::int64_t top = 0;
  bool is_cut = false;                 // the file ends within its pixels, or right behind them
  std::array<std::uint8_t, 3> fill{};  // the transparent colour, else the first one
};

/// @param alpha  white: the colour of transparent pixels becomes white in the frame's own palette.
/// @throws InputError if the file ends before the frame's pixels.
GifFrame first_frame(std::span<const std::byte> gif, Alpha alpha);

/// The whole screen. @param pixels  the decoded frame.
RgbImage on_screen(const GifFrame& frame, RgbImage pixels);

}  // namespace caravan::image
