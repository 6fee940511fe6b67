#pragma once
// What kind of file some bytes are, by how they begin.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace caravan::image {

enum class Container { kJpeg, kPng, kWebp, kGif, kBmp, kTiff };

const char* container_name(Container container);

/// @throws InputError if it is none of these; says what it seems to be instead.
Container recognise(std::span<const std::byte> bytes);

struct PixelSize {
  std::int64_t width = 0;
  std::int64_t height = 0;
};

/// Size in the header of a PNG: libpng refuses sides above a million itself, but not in words that
/// a user could act on. Nothing if the header is cut short.
std::optional<PixelSize> png_size(std::span<const std::byte> bytes);

/// @throws InputError unless both sides are at least 1 and there are at most `max_pixels`.
void check_size(Container container, PixelSize size, std::int64_t max_pixels);

}  // namespace caravan::image
