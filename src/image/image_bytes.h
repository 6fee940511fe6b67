#pragma once
// Numbers in the bytes of an image at checked places: what the headers and the runs of BMP, GIF,
// PNG and WebP are read with. A place behind the end is the image's fault, never a read.

#include <cstddef>
#include <cstdint>
#include <span>

#include "caravan/core/error.h"
#include "container.h"

namespace caravan::image {

class ImageBytes {
 public:
  ImageBytes(Container container, std::span<const std::byte> bytes)
      : container_(container), bytes_(bytes) {}

  std::int64_t size() const { return std::ssize(bytes_); }

  /// @throws InputError, as all below, if the place is outside.
  std::uint8_t u8(std::int64_t place) const {
    CARAVAN_CHECK(place >= 0 && place < size(), InputError,
                  "the {} image is truncated: it ends at byte {}", container_name(container_),
                  size());
    return std::to_integer<std::uint8_t>(bytes_[static_cast<std::size_t>(place)]);
  }
  /// Little-endian.
  std::uint16_t u16(std::int64_t place) const {
    return static_cast<std::uint16_t>(u8(place) | u8(place + 1) << 8);
  }
  std::uint32_t u32(std::int64_t place) const {
    return u16(place) | std::uint32_t{u16(place + 2)} << 16;
  }
  std::int32_t i32(std::int64_t place) const { return static_cast<std::int32_t>(u32(place)); }
  std::uint32_t big_endian_u32(std::int64_t place) const {
    std::uint32_t value = 0;
    for (std::int64_t i = 0; i < 4; ++i) value = value << 8 | u8(place + i);
    return value;
  }

  std::span<const std::byte> part(std::int64_t begin, std::int64_t end) const {
    CARAVAN_CHECK(begin >= 0 && begin <= end && end <= size(), InputError,
                  "the {} image is truncated: it has {} bytes", container_name(container_), size());
    return bytes_.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  }

 private:
  Container container_;
  std::span<const std::byte> bytes_;
};

}  // namespace caravan::image
