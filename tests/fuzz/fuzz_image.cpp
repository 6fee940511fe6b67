// Image files of every format, from the header to the tiles.

#include <span>
#include <utility>

#include "caravan/core/error.h"
#include "caravan/image/tiling.h"
#include "memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace caravan;
  const auto bytes = std::as_bytes(std::span(data, size));
  image::DecodeOptions options;
  options.max_pixels = 1 << 20;
  if (bytes.size() % 2 == 0) options.alpha = image::Alpha::kWhite;
  image::TilingConfig config;
  config.tile_size = 28;
  try {
    const image::RgbImage rgb = image::decode(bytes, options);
    fuzz::require(rgb.width > 0 && rgb.height > 0 && rgb.width * rgb.height <= options.max_pixels,
                  "more pixels than allowed");
    fuzz::require(std::cmp_equal(rgb.pixels.size(), rgb.width * rgb.height * 3),
                  "a picture with missing pixels");
    const image::PreparedImage prepared = image::prepare_tiles(rgb, "", config);
    fuzz::require(
        std::cmp_equal(prepared.tiles.size(), prepared.layout.num_tiles() * config.tile_bytes()),
        "tiles are missing");
  } catch (const InputError&) {  // the only way to refuse a file
  }
  return 0;
}
