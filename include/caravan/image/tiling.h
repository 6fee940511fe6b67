#pragma once
// What a Llama 3.2 Vision model sees of a picture: up to `max_tiles` square tiles of normalised
// pixels, and the arrangement of the tiles.
//
// As the reference implementations (llama-models `image_transform.py`, transformers
// `image_processing_mllama.py`): choose the arrangement, resize on 8-bit data keeping the aspect
// ratio, put the result at the top left of a black canvas, scale to [0, 1], normalise, cut.
// Leaves out: tiles that are absent (the model takes zeros for them), the model itself.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "caravan/image/decode.h"

namespace caravan::image {

/// From the checkpoint: its image size, number of tiles, and per channel mean and deviation.
struct TilingConfig {
  std::int64_t tile_size = 560;
  std::int64_t max_tiles = 4;
  std::array<float, 3> mean = {0.48145466F, 0.4578275F, 0.40821073F};
  std::array<float, 3> deviation = {0.26862954F, 0.26130258F, 0.27577711F};

  std::int64_t tile_values() const { return 3 * tile_size * tile_size; }
  std::int64_t max_bytes() const {
    return max_tiles * tile_values() * static_cast<std::int64_t>(sizeof(float));
  }
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

/// Resizes, pads, normalises and cuts `image`.
/// @param tiles  [rows * columns, 3, tile_size, tile_size], tiles row by row; filled completely.
void write_tiles(RgbImage image, const TileLayout& layout, const TilingConfig& config,
                 std::span<float> tiles);

/// A picture ready for the vision encoder.
struct PreparedImage {
  TileLayout layout;
  std::int64_t tile_size = 0;
  std::vector<float> tiles;  // [layout.num_tiles(), 3, tile_size, tile_size]
  std::string content_hash;  // SHA-256 of the file's bytes: equal for equal files

  std::int64_t bytes() const {
    return static_cast<std::int64_t>(tiles.size() * sizeof(float) + content_hash.size());
  }
};

/// Arranges, resizes, normalises and cuts a decoded picture.
PreparedImage prepare_tiles(RgbImage image, std::string content_hash, const TilingConfig& config);

/// Decodes and prepares. @throws InputError as `decode` does.
PreparedImage prepare_image(std::span<const std::byte> bytes, const DecodeLimits& limits,
                            const TilingConfig& config);

/// SHA-256 of the bytes of an image, 64 hexadecimal digits: `PreparedImage::content_hash`.
std::string content_hash(std::span<const std::byte> bytes);

}  // namespace caravan::image
