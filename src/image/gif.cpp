#include "gif.h"

#include <cstdint>

namespace caravan::image {
namespace {

constexpr std::byte kExtension{0x21};
constexpr std::byte kGraphicControl{0xf9};
constexpr std::byte kHasTransparentColour{0x01};
constexpr std::byte kHasColourTable{0x80};

std::size_t colour_table_bytes(std::byte packed) {
  if ((packed & kHasColourTable) == std::byte{0}) return 0;
  return std::size_t{3} << (std::to_integer<unsigned>(packed & std::byte{7}) + 1);
}

}  // namespace

// GIF89a specification, sections 17 to 23: header, screen, colour table, then blocks up to the
// first image. What does not fit this is left for the decoder to refuse.
std::vector<std::byte> without_transparency(std::span<const std::byte> gif) {
  std::vector<std::byte> copy(gif.begin(), gif.end());
  constexpr std::size_t kScreenEnd = 13;
  if (copy.size() < kScreenEnd) return copy;
  std::size_t place = kScreenEnd + colour_table_bytes(copy[10]);
  while (place + 4 < copy.size() && copy[place] == kExtension) {
    if (copy[place + 1] == kGraphicControl && copy[place + 2] != std::byte{0})
      copy[place + 3] &= ~kHasTransparentColour;
    place += 2;
    while (place < copy.size() && copy[place] != std::byte{0})
      place += 1 + std::to_integer<std::size_t>(copy[place]);
    ++place;
  }
  return copy;
}

}  // namespace caravan::image
