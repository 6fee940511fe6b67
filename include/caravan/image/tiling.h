#pragma once
// What a Llama 3.2 Vision model sees of a picture: up to `max_tiles` square tiles of 8-bit pixels,
// and the arrangement of the tiles.
//
// As the reference implementations (llama-models `image_transform.py`, transformers
// `image_processing_mllama.py`): choose the arrangement, resize on 8-bit data keeping the aspect
// ratio, put the result at the top left of a black canvas, cut. They normalise before they cut;
// here the model does it, from a quarter of the memory. Leaves out: tiles that are absent (the
// model takes zeros for them), the model itself.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "caravan/image/decode.h"

namespace caravan::image {

/// From the checkpoint: its image size and number of tiles.
struct TilingConfig {
  std::int64_t tile_size = 560;
  std::int64_t max_tiles = 4;

  std::int64_t tile_bytes() const { return 3 * tile_size * tile_size; }
  std::int64_t max_bytes() const { return max_tiles * tile_bytes(); }
};

/// @throws ConfigError naming every number that cannot be.
void check(const TilingConfig& config);

struct TileLayout {
  std::int64_t rows = 1;     // tiles down
  std::int64_t columns = 1;  // tiles across
  // Number from 1 of the arrangement among all (rows, columns) with rows * columns <= max_tiles, in
  // lexicographic order; 0 stands for "no image" in the model's tables.
  std::int64_t aspect_ratio_id = 1;
  std::int64_t resized_width = 0;
  std::int64_t resized_height = 0;

  std::int64_t num_tiles() const { return rows * columns; }
};

/// The arrangement with the smallest enlargement that loses nothing, else with the least loss.
TileLayout choose_layout(std::int64_t width, std::int64_t height, const TilingConfig& config);

/// Resizes, pads and cuts `image`.
/// @param tiles  [rows * columns, 3, tile_size, tile_size], tiles row by row; filled completely.
void write_tiles(RgbImage image, const TileLayout& layout, const TilingConfig& config,
                 std::span<std::uint8_t> tiles);

/// A picture ready for the vision encoder.
struct PreparedImage {
  TileLayout layout;
  std::int64_t tile_size = 0;
  std::vector<std::uint8_t> tiles;  // [layout.num_tiles(), 3, tile_size, tile_size], 0 to 255
  std::string content_hash;         // SHA-256 of the file's bytes: equal for equal files

  std::int64_t bytes() const {
    return static_cast<std::int64_t>(tiles.size() + content_hash.size());
  }
};

/// Arranges, resizes and cuts a decoded picture.
PreparedImage prepare_tiles(RgbImage image, std::string content_hash, const TilingConfig& config);

/// Decodes and prepares. @throws InputError as `decode` does.
PreparedImage prepare_image(std::span<const std::byte> bytes, const DecodeOptions& options,
                            const TilingConfig& config);

/// SHA-256 of the bytes of an image, 64 hexadecimal digits: `PreparedImage::content_hash`.
std::string content_hash(std::span<const std::byte> bytes);

}  // namespace caravan::image
