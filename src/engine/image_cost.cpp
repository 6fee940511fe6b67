#include "caravan/engine/image_cost.h"

#include <algorithm>

#include "caravan/core/error.h"
#include "caravan/model/vision_encoder.h"

namespace caravan::engine {
namespace {

/// Multiplications of the text layers for one row, attention aside.
double text_row(const model::LlamaConfig& config) {
  const double projections = static_cast<double>(
      config.head_dim * (2 * config.num_heads + 2 * config.num_kv_heads) + 3 * config.ffn_size);
  return static_cast<double>(config.num_layers) * static_cast<double>(config.hidden_size) *
         projections;
}

ImageCost cost_of(const model::LlamaConfig& config, const model::TileGrid& grid) {
  const model::VisionConfig& vision = *config.vision;
  ImageCost cost;
  cost.tokens = grid.num_tiles() * vision.tile_tokens();
  // The encoder also computes the tokens of one absent tile.
  const std::int64_t tiles = std::min(grid.num_tiles() + 1, model::kMaxTiles);
  const auto rows = static_cast<double>(tiles * vision.tile_tokens());
  const auto width = static_cast<double>(vision.width);
  const double embed = rows * width * static_cast<double>(vision.patch_elements());
  const double layer =
      rows * width * (4 * width + 2 * static_cast<double>(vision.ffn_size) + 2 * rows);
  const auto keys_values =
      static_cast<double>(vision.num_cross_layers() * 2 * config.num_kv_heads * config.head_dim);
  const std::int64_t pieces = model::VisionEncoder::num_pieces(cost.tokens);
  const double piece = static_cast<double>(ceil_div(cost.tokens, pieces)) *
                       static_cast<double>(config.hidden_size) *
                       (static_cast<double>(vision.feature_size()) + keys_values);
  cost.unit_rows.push_back(embed);
  cost.unit_rows.insert(
      cost.unit_rows.end(),
      static_cast<std::size_t>(vision.num_local_layers + vision.num_global_layers), layer);
  cost.unit_rows.insert(cost.unit_rows.end(), static_cast<std::size_t>(pieces), piece);
  for (double& unit : cost.unit_rows) unit /= text_row(config);
  CARAVAN_ASSERT(std::ssize(cost.unit_rows) == model::num_image_units(vision, grid),
                 "an image of {} tiles has {} units, not {}", grid.num_tiles(),
                 model::num_image_units(vision, grid), cost.unit_rows.size());
  return cost;
}

}  // namespace

std::array<ImageCost, model::kMaxTiles> image_costs(const model::LlamaConfig& config) {
  std::array<ImageCost, model::kMaxTiles> costs;
  if (!config.vision) return costs;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    costs[i] = cost_of(config, {1, static_cast<std::int64_t>(i) + 1});
  }
  return costs;
}

}  // namespace caravan::engine
