#include "caravan/image/tiling.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "caravan/image/resize.h"
#include "caravan/io/sha256.h"

namespace caravan::image {
namespace {

constexpr std::int64_t kMaxTileSize = 8192;
constexpr std::int64_t kMaxTiles = 64;

double scale_to_fit(const TileLayout& grid, double width, double height, double tile) {
  return std::min(static_cast<double>(grid.rows) * tile / height,
                  static_cast<double>(grid.columns) * tile / width);
}

/// Whether an arrangement with `scale` and `area` is better than the best until now.
bool is_better(double scale, std::int64_t area, double best_scale, std::int64_t best_area) {
  if (scale == best_scale) return area < best_area;
  if (scale >= 1.0 && best_scale >= 1.0) return scale < best_scale;
  return scale > best_scale;
}

// In double and in this order of operations, as the references: a floor of a product that ought to
// be whole may come out one lower, and then has to.
void choose_resized_size(double width, double height, double tile, TileLayout& layout) {
  const double target_width = std::clamp(width, tile, static_cast<double>(layout.columns) * tile);
  const double target_height = std::clamp(height, tile, static_cast<double>(layout.rows) * tile);
  const double scale_width = target_width / width;
  const double scale_height = target_height / height;
  double new_width = target_width;
  double new_height = target_height;
  if (scale_width < scale_height) {
    new_height = std::min(std::floor(height * scale_width), target_height);
  } else {
    new_width = std::min(std::floor(width * scale_height), target_width);
  }
  layout.resized_width = std::max<std::int64_t>(1, static_cast<std::int64_t>(new_width));
  layout.resized_height = std::max<std::int64_t>(1, static_cast<std::int64_t>(new_height));
}

}  // namespace

void check(const TilingConfig& config) {
  std::string faults;
  if (config.tile_size < 1 || config.tile_size > kMaxTileSize)
    faults += fmt::format("; image size {}, expected 1 to {}", config.tile_size, kMaxTileSize);
  if (config.max_tiles < 1 || config.max_tiles > kMaxTiles)
    faults += fmt::format("; at most {} tiles, expected 1 to {}", config.max_tiles, kMaxTiles);
  CARAVAN_CHECK(faults.empty(), ConfigError, "the model's image preparation is not usable{}",
                faults);
}

TileLayout choose_layout(std::int64_t width, std::int64_t height, const TilingConfig& config) {
  CARAVAN_ASSERT(width > 0 && height > 0, "image of {} x {} pixels", width, height);
  const auto tile = static_cast<double>(config.tile_size);
  std::optional<TileLayout> best;
  double best_scale = 0.0;
  std::int64_t id = 0;
  for (std::int64_t rows = 1; rows <= config.max_tiles; ++rows) {
    for (std::int64_t columns = 1; rows * columns <= config.max_tiles; ++columns) {
      TileLayout layout{rows, columns, ++id, 0, 0};
      const double scale =
          scale_to_fit(layout, static_cast<double>(width), static_cast<double>(height), tile);
      if (best && !is_better(scale, layout.num_tiles(), best_scale, best->num_tiles())) continue;
      best = layout;
      best_scale = scale;
    }
  }
  choose_resized_size(static_cast<double>(width), static_cast<double>(height), tile, *best);
  return *best;
}

void write_tiles(RgbImage image, const TileLayout& layout, const TilingConfig& config,
                 std::span<std::uint8_t> tiles) {
  const std::int64_t size = config.tile_size;
  CARAVAN_ASSERT(std::cmp_equal(tiles.size(), layout.num_tiles() * config.tile_bytes()),
                 "{} values for {} tiles of {} pixels", tiles.size(), layout.num_tiles(), size);
  const RgbImage resized =
      resize_bilinear(std::move(image), layout.resized_width, layout.resized_height);
  std::uint8_t* out = tiles.data();
  for (std::int64_t tile = 0; tile < layout.num_tiles(); ++tile) {
    const std::int64_t top = tile / layout.columns * size;
    const std::int64_t left = tile % layout.columns * size;
    const std::int64_t filled = std::clamp<std::int64_t>(resized.width - left, 0, size);
    for (std::size_t c = 0; c < 3; ++c) {
      for (std::int64_t row = top; row < top + size; ++row) {
        const std::int64_t count = row < resized.height ? filled : 0;
        const auto in = static_cast<std::size_t>((row * resized.width + left) * 3) + c;
        for (std::int64_t i = 0; i < count; ++i)
          out[i] = resized.pixels[in + static_cast<std::size_t>(3 * i)];
        std::fill(out + count, out + size, std::uint8_t{0});
        out += size;
      }
    }
  }
}

PreparedImage prepare_tiles(RgbImage image, std::string content_hash, const TilingConfig& config) {
  PreparedImage prepared;
  prepared.layout = choose_layout(image.width, image.height, config);
  prepared.tile_size = config.tile_size;
  prepared.tiles.resize(
      checked_cast<std::size_t>(prepared.layout.num_tiles() * config.tile_bytes()));
  write_tiles(std::move(image), prepared.layout, config, prepared.tiles);
  prepared.content_hash = std::move(content_hash);
  return prepared;
}

PreparedImage prepare_image(std::span<const std::byte> bytes, const DecodeOptions& options,
                            const TilingConfig& config) {
  return prepare_tiles(decode(bytes, options), content_hash(bytes), config);
}

std::string content_hash(std::span<const std::byte> bytes) {
  io::Sha256 hash;
  hash.update(bytes);
  return hash.hex_digest();
}

}  // namespace caravan::image
