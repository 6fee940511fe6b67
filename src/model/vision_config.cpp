#include "caravan/model/vision_config.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace caravan::model {
namespace {

bool increasing_below(const std::vector<std::int64_t>& layers, std::int64_t end) {
  std::int64_t last = -1;
  for (const std::int64_t layer : layers) {
    if (layer <= last || layer >= end) return false;
    last = layer;
  }
  return true;
}

}  // namespace

std::int64_t tile_cell_index(TileCell cell) {
  const auto found = std::find(kTileCells.begin(), kTileCells.end(), cell);
  return found == kTileCells.end() ? -1 : found - kTileCells.begin();
}

std::vector<std::string> VisionConfig::problems(std::int64_t num_text_layers,
                                                std::int64_t vocab_size) const {
  std::vector<std::string> problems;
  const struct {
    const char* name;
    std::int64_t value;
    std::int64_t limit;
  } sizes[] = {{"tile_size", tile_size, 4096},
               {"patch_size", patch_size, 256},
               {"width", width, 65536},
               {"num_heads", num_heads, 1024},
               {"ffn_size", ffn_size, 1 << 20},
               {"num_local_layers", num_local_layers, 1024},
               {"extra_embeddings", extra_embeddings, 1024}};
  for (const auto& size : sizes) {
    if (size.value < 1 || size.value > size.limit) {
      problems.push_back(
          fmt::format("vision.{} must be 1 to {}, found {}", size.name, size.limit, size.value));
    }
  }
  if (num_global_layers < 0 || num_global_layers > 1024) {
    problems.push_back(
        fmt::format("vision.num_global_layers must be 0 to 1024, found {}", num_global_layers));
  }
  if (!problems.empty()) return problems;
  if (tile_size % patch_size != 0) {
    problems.push_back(
        fmt::format("vision.tile_size ({}) must be a multiple of vision.patch_size ({})", tile_size,
                    patch_size));
  }
  if (width % num_heads != 0) {
    problems.push_back(fmt::format("vision.width ({}) must be a multiple of vision.num_heads ({})",
                                   width, num_heads));
  }
  if (!increasing_below(saved_layers, num_local_layers)) {
    problems.push_back(
        fmt::format("vision.saved_layers must increase and be below {} (the local layers), found "
                    "{}",
                    num_local_layers, fmt::join(saved_layers, ", ")));
  }
  if (cross_layers.empty() || !increasing_below(cross_layers, num_text_layers)) {
    problems.push_back(
        fmt::format("vision.cross_layers must be some, increase and be below {} (the text layers), "
                    "found {}",
                    num_text_layers, fmt::join(cross_layers, ", ")));
  }
  if (!(norm_epsilon > 0) || !(norm_epsilon < 1)) {
    problems.push_back(
        fmt::format("vision.norm_epsilon must be between 0 and 1, found {}", norm_epsilon));
  }
  if (image_token_id != vocab_size) {
    problems.push_back(fmt::format(
        "vision.image_token_id must be the first id behind the vocabulary, {}, found {}",
        vocab_size, image_token_id));
  }
  return problems;
}

}  // namespace caravan::model
