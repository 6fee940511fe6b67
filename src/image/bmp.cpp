#include "bmp.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <string>
#include <vector>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "colour.h"
#include "image_bytes.h"

namespace caravan::image {
namespace {

constexpr std::int64_t kFileHeaderBytes = 14;
constexpr std::int64_t kOs2HeaderBytes = 12;
enum Compression : std::uint32_t { kPlain = 0, kRle8 = 1, kRle4 = 2, kMasks = 3, kAlphaMasks = 6 };

using Colour = std::array<std::uint8_t, 3>;  // R, G, B

struct Header {
  PixelSize size;
  bool is_top_down = false;
  std::int64_t bits = 0;
  std::uint32_t compression = kPlain;
  std::array<std::uint32_t, 3> masks{};
  std::uint32_t alpha_mask = 0;  // none
  std::vector<Colour> palette;
  std::int64_t pixel_offset = 0;

  std::int64_t row_bytes() const { return (size.width * bits + 31) / 32 * 4; }
};

bool is_known_form(const Header& header) {
  switch (header.compression) {
    case kPlain: {
      constexpr std::int64_t kBits[] = {1, 4, 8, 16, 24, 32};
      return std::find(std::begin(kBits), std::end(kBits), header.bits) != std::end(kBits);
    }
    case kRle8: return header.bits == 8 && !header.is_top_down;
    case kRle4: return header.bits == 4 && !header.is_top_down;
    case kMasks:
    case kAlphaMasks: return header.bits == 16 || header.bits == 32;
    default: return false;
  }
}

void read_masks(const ImageBytes& bytes, Header& header) {
  if (header.compression == kMasks || header.compression == kAlphaMasks) {
    // Behind the 40 bytes of the oldest header, which is where later headers have them as fields.
    for (std::size_t c = 0; c < 3; ++c)
      header.masks[c] = bytes.u32(kFileHeaderBytes + 40 + 4 * static_cast<std::int64_t>(c));
    for (const std::uint32_t mask : header.masks) {
      CARAVAN_CHECK(mask != 0 && std::has_single_bit((mask >> std::countr_zero(mask)) + 1),
                    InputError, "the BMP image is damaged: bit mask {:#x}", mask);
    }
  } else if (header.bits == 16) {
    header.masks = {0x7c00, 0x03e0, 0x001f};
  } else {
    header.masks = {0xff0000, 0x00ff00, 0x0000ff};
  }
}

/// A fourth mask stands behind the others in later headers, and where the compression says so.
void read_alpha_mask(const ImageBytes& bytes, std::int64_t header_bytes, Header& header) {
  const bool is_field = header.compression == kMasks && header_bytes >= 56;
  if (!is_field && header.compression != kAlphaMasks) return;
  const std::uint32_t mask = bytes.u32(kFileHeaderBytes + 52);
  // Anything else than a run of bits is no mask.
  if (mask != 0 && std::has_single_bit((std::uint64_t{mask} >> std::countr_zero(mask)) + 1))
    header.alpha_mask = mask;
}

void read_palette(const ImageBytes& bytes, std::int64_t offset, std::int64_t entry_bytes,
                  std::int64_t colours_said, Header& header) {
  if (header.bits > 8) return;
  const std::int64_t most = std::int64_t{1} << header.bits;
  const std::int64_t room = (header.pixel_offset - offset) / entry_bytes;
  const std::int64_t count = std::min({most, colours_said == 0 ? most : colours_said, room});
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t entry = offset + i * entry_bytes;  // B, G, R
    header.palette.push_back({bytes.u8(entry + 2), bytes.u8(entry + 1), bytes.u8(entry)});
  }
  header.palette.resize(static_cast<std::size_t>(most));  // black, as for colours that are missing
}

Header read_header(const ImageBytes& bytes) {
  Header header;
  header.pixel_offset = bytes.u32(10);
  const std::int64_t header_bytes = bytes.u32(14);
  const bool is_os2 = header_bytes == kOs2HeaderBytes;
  CARAVAN_CHECK(is_os2 || (header_bytes >= 40 && header_bytes <= 124), InputError,
                "the BMP image has a header of {} bytes, expected 12 or 40 to 124", header_bytes);
  std::int64_t colours_said = 0;
  if (is_os2) {
    header.size = {bytes.u16(18), bytes.u16(20)};
    header.bits = bytes.u16(24);
  } else {
    const std::int64_t height = bytes.i32(22);
    header.size = {bytes.i32(18), std::abs(height)};
    header.is_top_down = height < 0;
    header.bits = bytes.u16(28);
    header.compression = bytes.u32(30);
    colours_said = bytes.u32(46);
  }
  CARAVAN_CHECK(is_known_form(header), InputError,
                "BMP images with {} bits per pixel and compression {} are not supported: convert "
                "the image to PNG or JPEG",
                header.bits, header.compression);
  read_masks(bytes, header);
  read_alpha_mask(bytes, header_bytes, header);
  const bool has_masks_behind = header_bytes == 40 && header.compression == kMasks;
  read_palette(bytes, kFileHeaderBytes + header_bytes + (has_masks_behind ? 12 : 0), is_os2 ? 3 : 4,
               colours_said, header);
  return header;
}

/// The bits of `mask` as 0 to 255.
std::uint8_t scaled(std::uint32_t value, std::uint32_t mask) {
  const int shift = std::countr_zero(mask);
  const std::uint64_t top = mask >> shift;
  return static_cast<std::uint8_t>(((value & mask) >> shift) * std::uint64_t{255} / top);
}

/// Palette index of every pixel of a run-length coded image, rows from the bottom.
class RunLengthDecoder {
 public:
  RunLengthDecoder(const ImageBytes& bytes, const Header& header)
      : bytes_(bytes),
        header_(header),
        place_(header.pixel_offset),
        indices_(checked_cast<std::size_t>(header.size.width * header.size.height)) {}

  std::vector<std::uint8_t> decode() {
    while (y_ < header_.size.height) {
      const std::uint8_t count = bytes_.u8(place_);
      const std::uint8_t value = bytes_.u8(place_ + 1);
      place_ += 2;
      if (count > 0) {
        for (std::int64_t i = 0; i < count; ++i) put(nibble_or_byte(value, i));
      } else if (!escape(value)) {
        break;
      }
    }
    return std::move(indices_);
  }

 private:
  std::uint8_t nibble_or_byte(std::uint8_t value, std::int64_t i) const {
    if (header_.compression == kRle8) return value;
    return static_cast<std::uint8_t>(i % 2 == 0 ? value >> 4 : value & 15);
  }
  void put(std::uint8_t index) {
    if (x_ < header_.size.width)
      indices_[static_cast<std::size_t>(y_ * header_.size.width + x_)] = index;
    ++x_;
  }
  /// False at the end of the image.
  bool escape(std::uint8_t code) {
    if (code == 1) return false;
    if (code == 0) {
      x_ = 0;
      ++y_;
    } else if (code == 2) {
      x_ += bytes_.u8(place_);
      y_ += bytes_.u8(place_ + 1);
      place_ += 2;
    } else {
      const bool is_bytes = header_.compression == kRle8;
      for (std::int64_t i = 0; i < code; ++i)
        put(nibble_or_byte(bytes_.u8(place_ + (is_bytes ? i : i / 2)), i));
      const std::int64_t used = is_bytes ? code : (code + 1) / 2;
      place_ += used + used % 2;  // whole 16-bit words
    }
    return true;
  }

  ImageBytes bytes_;
  const Header& header_;
  std::int64_t place_;
  std::int64_t x_ = 0;
  std::int64_t y_ = 0;
  std::vector<std::uint8_t> indices_;
};

Colour colour_at(const ImageBytes& bytes, const Header& header, std::int64_t row_offset,
                 std::int64_t column, Alpha alpha) {
  if (header.bits <= 8) {
    const std::int64_t per_byte = 8 / header.bits;
    const auto shift = static_cast<int>((per_byte - 1 - column % per_byte) * header.bits);
    const int index = bytes.u8(row_offset + column / per_byte) >> shift & ((1 << header.bits) - 1);
    return header.palette[static_cast<std::size_t>(index)];
  }
  const std::int64_t place = row_offset + column * header.bits / 8;
  if (header.bits == 24) return {bytes.u8(place + 2), bytes.u8(place + 1), bytes.u8(place)};
  const std::uint32_t value = header.bits == 16 ? bytes.u16(place) : bytes.u32(place);
  Colour colour{};
  for (std::size_t c = 0; c < 3; ++c) colour[c] = scaled(value, header.masks[c]);
  if (alpha == Alpha::kWhite && header.alpha_mask != 0) {
    for (std::uint8_t& sample : colour)
      sample = over_white(sample, scaled(value, header.alpha_mask));
  }
  return colour;
}

}  // namespace

PixelSize bmp_size(std::span<const std::byte> bytes) {
  return read_header(ImageBytes(Container::kBmp, bytes)).size;
}

RgbImage decode_bmp(std::span<const std::byte> data, Alpha alpha) {
  const ImageBytes bytes(Container::kBmp, data);
  const Header header = read_header(bytes);
  const auto [width, height] = header.size;
  const bool is_rle = header.compression == kRle8 || header.compression == kRle4;
  CARAVAN_CHECK(
      is_rle || header.row_bytes() * height <= bytes.size() - header.pixel_offset, InputError,
      "the BMP image is truncated: {} bytes, but {} x {} pixels of {} bits need {}", bytes.size(),
      width, height, header.bits, header.pixel_offset + header.row_bytes() * height);
  const std::vector<std::uint8_t> indices =
      is_rle ? RunLengthDecoder(bytes, header).decode() : std::vector<std::uint8_t>();
  RgbImage image{width, height, {}};
  image.pixels.reserve(checked_cast<std::size_t>(width * height * 3));
  for (std::int64_t row = 0; row < height; ++row) {
    const std::int64_t stored_row = header.is_top_down ? row : height - 1 - row;
    for (std::int64_t column = 0; column < width; ++column) {
      const Colour colour =
          is_rle ? header.palette[indices[static_cast<std::size_t>(stored_row * width + column)]]
                 : colour_at(bytes, header, header.pixel_offset + stored_row * header.row_bytes(),
                             column, alpha);
      image.pixels.insert(image.pixels.end(), colour.begin(), colour.end());
    }
  }
  return image;
}

}  // namespace caravan::image
