#include "gif.h"

#include <algorithm>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "image_bytes.h"

namespace caravan::image {
namespace {

constexpr std::size_t kScreenEnd = 13;
constexpr std::size_t kDescriptorBytes = 10;
constexpr std::uint8_t kExtension = 0x21;
constexpr std::uint8_t kGraphicControl = 0xf9;
constexpr std::uint8_t kImage = 0x2c;
constexpr std::uint8_t kTrailer = 0x3b;

std::size_t colour_table_bytes(const ImageBytes& bytes, std::size_t place_of_flags) {
  const std::uint8_t flags = bytes.u8(static_cast<std::int64_t>(place_of_flags));
  return (flags & 0x80) == 0 ? 0 : std::size_t{3} << ((flags & 7) + 1);
}

/// Behind the data blocks that begin at `place`, or the end of the file.
std::size_t skip_blocks(std::span<const std::byte> gif, std::size_t place) {
  while (place < gif.size() && gif[place] != std::byte{0})
    place += 1 + std::to_integer<std::size_t>(gif[place]);
  return std::min(place + 1, gif.size());
}

void append(std::vector<std::byte>& file, std::span<const std::byte> bytes) {
  file.insert(file.end(), bytes.begin(), bytes.end());
}

}  // namespace

// GIF89a specification, sections 17 to 23: header, screen, colour table, then extensions up to the
// first image.
GifFrame first_frame(std::span<const std::byte> gif, Alpha alpha) {
  const ImageBytes bytes(Container::kGif, gif);
  GifFrame frame;
  const std::size_t tables_end = kScreenEnd + colour_table_bytes(bytes, 10);
  std::size_t place = tables_end;
  std::size_t fill_index = 0;
  bool has_transparency = false;
  while (bytes.u8(place) == kExtension) {
    if (bytes.u8(place + 1) == kGraphicControl && bytes.u8(place + 2) >= 4) {
      has_transparency = (bytes.u8(place + 3) & 1) != 0;
      fill_index = has_transparency ? bytes.u8(place + 6) : 0;
    }
    place = skip_blocks(gif, place + 2);
  }
  CARAVAN_CHECK(bytes.u8(place) == kImage, InputError,
                "the GIF image is damaged or has no frame: byte {} is {:#04x}", place,
                bytes.u8(place));
  frame.left = bytes.u16(place + 1);
  frame.top = bytes.u16(place + 3);
  frame.size = {bytes.u16(place + 5), bytes.u16(place + 7)};
  frame.screen = {std::max<std::int64_t>(bytes.u16(6), frame.left + frame.size.width),
                  std::max<std::int64_t>(bytes.u16(8), frame.top + frame.size.height)};

  const std::size_t local_table = place + kDescriptorBytes;
  const std::size_t local_bytes = colour_table_bytes(bytes, place + 9);
  const auto table = local_bytes > 0 ? bytes.part(local_table, local_table + local_bytes)
                                     : bytes.part(kScreenEnd, tables_end);
  for (std::size_t c = 0; c < 3 && (fill_index + 1) * 3 <= table.size(); ++c)
    frame.fill[c] = std::to_integer<std::uint8_t>(table[fill_index * 3 + c]);

  const auto size_of_frame = bytes.part(place + 5, place + 9);
  append(frame.file, bytes.part(0, 6));
  append(frame.file, size_of_frame);
  append(frame.file, bytes.part(10, tables_end));
  const std::size_t global_begin = frame.file.size() - (tables_end - kScreenEnd);
  append(frame.file, bytes.part(place, place + 1));
  frame.file.insert(frame.file.end(), 4, std::byte{0});  // at the top left
  append(frame.file, size_of_frame);
  const std::size_t local_begin = frame.file.size() + 1;  // behind the flags
  const std::size_t end = skip_blocks(gif, local_table + local_bytes + 1);
  append(frame.file, bytes.part(place + 9, end));
  frame.is_cut = gif[end - 1] != std::byte{0};  // which ends a list of blocks
  frame.file.push_back(std::byte{kTrailer});
  if (alpha == Alpha::kWhite && has_transparency) {
    frame.fill = {255, 255, 255};
    const std::size_t table_begin = local_bytes > 0 ? local_begin : global_begin;
    for (std::size_t c = 0; c < 3 && (fill_index + 1) * 3 <= table.size(); ++c)
      frame.file[table_begin + fill_index * 3 + c] = std::byte{255};
  }
  return frame;
}

RgbImage on_screen(const GifFrame& frame, RgbImage pixels) {
  if (frame.screen.width == pixels.width && frame.screen.height == pixels.height) return pixels;
  RgbImage screen{frame.screen.width, frame.screen.height, {}};
  screen.pixels.resize(checked_cast<std::size_t>(screen.width * screen.height * 3));
  for (std::size_t i = 0; i < screen.pixels.size(); ++i) screen.pixels[i] = frame.fill[i % 3];
  for (std::int64_t row = 0; row < pixels.height; ++row) {
    std::copy_n(pixels.pixels.begin() + row * pixels.width * 3, pixels.width * 3,
                screen.pixels.begin() + ((frame.top + row) * screen.width + frame.left) * 3);
  }
  return screen;
}

}  // namespace caravan::image
