#pragma once
// The vision part of a Llama 3.2 Vision model (Mllama): the encoder's sizes and where the text
// decoder reads images.
//
// An image is cut into up to four square tiles, each tile into patches; a class token leads each
// tile. All tiles of an image are encoded together, absent ones included, with rows of padding that
// round each tile up to a multiple of eight tokens. Leaves out: preparing pixels (image/).

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace caravan::model {

/// Tiles down and across of each arrangement of an image, in the order of the ids 1 to 8 that
/// checkpoints use.
struct TileGrid {
  std::int64_t down = 0;
  std::int64_t across = 0;
  std::int64_t num_tiles() const { return down * across; }
  bool operator==(const TileGrid&) const = default;
};
inline constexpr std::array<TileGrid, 8> kTileGrids = {
    {{1, 1}, {1, 2}, {1, 3}, {1, 4}, {2, 1}, {2, 2}, {3, 1}, {4, 1}}};
inline constexpr std::int64_t kMaxTiles = 4;

/// Mean and deviation of red, green and blue, for values from 0 to 1: those of CLIP (Radford et al.
/// 2021), which the models were trained with.
inline constexpr std::array<float, 3> kPixelMean = {0.48145466F, 0.4578275F, 0.40821073F};
inline constexpr std::array<float, 3> kPixelDeviation = {0.26862954F, 0.26130258F, 0.27577711F};

/// The cells (row, column) of a tile table that some grid uses; tables are stored as these rows.
struct TileCell {
  std::int64_t row = 0;
  std::int64_t column = 0;
  bool operator==(const TileCell&) const = default;
};
inline constexpr std::array<TileCell, 8> kTileCells = {
    {{0, 0}, {0, 1}, {0, 2}, {0, 3}, {1, 0}, {1, 1}, {2, 0}, {3, 0}}};
/// Row of a stored tile table that holds the cell; -1 for one that no grid uses.
std::int64_t tile_cell_index(TileCell cell);

struct VisionConfig {
  std::int64_t tile_size = 0;   // T, pixels of a tile's side
  std::int64_t patch_size = 0;  // P, divides T
  std::int64_t width = 0;       // W, of the encoder
  std::int64_t num_heads = 0;   // divides W; head_dim = W / heads
  std::int64_t ffn_size = 0;    // of the encoder's feed-forward
  std::int64_t num_local_layers = 0;
  std::int64_t num_global_layers = 0;
  /// Local layers whose inputs are part of the features, increasing.
  std::vector<std::int64_t> saved_layers;
  double norm_epsilon = 1e-5;
  /// Text layers right before which the cross-attention layers run, increasing.
  std::vector<std::int64_t> cross_layers;
  std::int64_t image_token_id = 0;  // first row of the extra embeddings: the vocabulary's size
  std::int64_t extra_embeddings = 8;
  bool operator==(const VisionConfig&) const = default;

  std::int64_t head_dim() const { return width / num_heads; }
  std::int64_t patches_across() const { return tile_size / patch_size; }
  std::int64_t patch_elements() const { return 3 * patch_size * patch_size; }
  /// N: the class token and the patches of a tile.
  std::int64_t tile_tokens() const { return patches_across() * patches_across() + 1; }
  /// Tokens of a tile in the encoder, rounded up to a multiple of eight.
  std::int64_t padded_tile_tokens() const { return (tile_tokens() + 7) / 8 * 8; }
  /// Inputs of the projector: the final state, then the saved ones, interleaved by channel.
  std::int64_t feature_size() const {
    return width * (1 + static_cast<std::int64_t>(saved_layers.size()));
  }
  std::int64_t num_cross_layers() const { return static_cast<std::int64_t>(cross_layers.size()); }

  /// Every fault, one text each; sizes are bounded so that no product of them overflows.
  std::vector<std::string> problems(std::int64_t num_text_layers, std::int64_t vocab_size) const;
};

}  // namespace caravan::model
