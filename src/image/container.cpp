#include "container.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "caravan/core/error.h"
#include "image_bytes.h"

namespace caravan::image {
namespace {

struct Signature {
  std::size_t offset;
  std::string_view bytes;
};

struct Known {
  Container container;
  Signature first;
  Signature second;  // empty: the first is enough
};

using namespace std::string_view_literals;

constexpr Known kKnown[] = {
    {Container::kJpeg, {0, "\xff\xd8\xff"sv}, {}},
    {Container::kPng, {0, "\x89PNG\r\n\x1a\n"sv}, {}},
    {Container::kWebp, {0, "RIFF"sv}, {8, "WEBP"sv}},
    {Container::kGif, {0, "GIF8"sv}, {}},
    {Container::kBmp, {0, "BM"sv}, {}},
    {Container::kTiff, {0, "II*\0"sv}, {}},
    {Container::kTiff, {0, "MM\0*"sv}, {}},
    {Container::kTiff, {0, "II+\0"sv}, {}},  // BigTIFF
    {Container::kTiff, {0, "MM\0+"sv}, {}},
};

/// Formats that people take for images that programs read.
struct Foreign {
  Signature signature;
  const char* name;
};
constexpr Foreign kForeign[] = {
    {{4, "ftypavif"sv}, "AVIF"},
    {{4, "ftyp"sv}, "HEIC or a video"},
    {{0, "\0\0\0\x0cJXL "sv}, "JPEG XL"},
    {{0, "\xff\x0a"sv}, "JPEG XL"},
    {{0, "\0\0\0\x0cjP  "sv}, "JPEG 2000"},
    {{0, "%PDF"sv}, "PDF"},
    {{0, "<svg"sv}, "SVG"},
    {{0, "<?xml"sv}, "XML or SVG"},
    {{0, "<!"sv}, "HTML"},
    {{0, "<html"sv}, "HTML"},
    {{0, "version https://git-lfs"sv}, "a Git LFS pointer, not the file itself: run git lfs pull"},
};

bool matches(std::string_view text, const Signature& signature) {
  return text.size() >= signature.offset &&
         text.substr(signature.offset).starts_with(signature.bytes);
}

std::string first_bytes(std::string_view text) {
  std::string shown;
  for (const char c : text.substr(0, 8))
    shown += fmt::format("{}{:02x}", shown.empty() ? "" : " ", static_cast<unsigned char>(c));
  return shown;
}

}  // namespace

const char* container_name(Container container) {
  switch (container) {
    case Container::kJpeg: return "JPEG";
    case Container::kPng: return "PNG";
    case Container::kWebp: return "WebP";
    case Container::kGif: return "GIF";
    case Container::kBmp: return "BMP";
    case Container::kTiff: return "TIFF";
  }
  return "";
}

Container recognise(std::span<const std::byte> bytes) {
  CARAVAN_CHECK(!bytes.empty(), InputError, "the image is empty (0 bytes)");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const Known& known : kKnown) {
    if (matches(text, known.first) && matches(text, known.second)) return known.container;
  }
  for (const Foreign& foreign : kForeign) {
    CARAVAN_CHECK(!matches(text, foreign.signature), InputError,
                  "expected a JPEG, PNG, WebP, GIF, BMP or TIFF image, found {}", foreign.name);
  }
  throw InputError(
      fmt::format("expected a JPEG, PNG, WebP, GIF, BMP or TIFF image, found {} bytes that begin "
                  "with {}",
                  bytes.size(), first_bytes(text)));
}

std::optional<PixelSize> png_size(std::span<const std::byte> bytes) {
  if (bytes.size() < 24) return std::nullopt;
  const ImageBytes header(Container::kPng, bytes);
  return PixelSize{header.big_endian_u32(16), header.big_endian_u32(20)};
}

void check_size(Container container, PixelSize size, std::int64_t max_pixels) {
  CARAVAN_CHECK(size.width > 0 && size.height > 0, InputError,
                "the {} image is damaged: its header says {} x {} pixels",
                container_name(container), size.width, size.height);
  CARAVAN_CHECK(size.height <= max_pixels / size.width, InputError,
                "the {} image is too large: {} x {} pixels, the limit is {} pixels in all",
                container_name(container), size.width, size.height, max_pixels);
}

}  // namespace caravan::image
