#include "meta_vision_config.h"

#include <algorithm>

#include "caravan/core/error.h"
#include "caravan/core/partition.h"

namespace caravan::checkpoint {
namespace {

constexpr std::int64_t kMaxLayers = 4096;

std::int64_t num_cross_layers(const JsonReader& json) {
  if (const auto flat = json.integer("vision_num_cross_attention_layers")) return *flat;
  const auto nested = json.object("vision_model");
  const auto adapter = nested ? nested->object("cross_attention_adapter") : std::nullopt;
  CARAVAN_CHECK(adapter.has_value(), InputError,
                "{}: \"vision_num_cross_attention_layers\" is missing", json.where());
  return adapter->need_integer("num_layers");
}

// Every step-th layer from the last one down, as in Meta's code.
std::vector<std::int64_t> cross_layers(const JsonReader& json, std::int64_t num_layers) {
  const std::int64_t count = num_cross_layers(json);
  const std::int64_t most = std::min(num_layers, kMaxLayers);
  CARAVAN_CHECK(count > 0 && count <= most, InputError,
                "{}: the number of cross-attention layers is {}, expected 1 to {}", json.where(),
                count, most);
  const std::int64_t step = ceil_div(num_layers, count);
  std::vector<std::int64_t> layers;
  for (std::int64_t layer = num_layers - 1; layer >= 0 && std::ssize(layers) < count; layer -= step)
    layers.push_back(layer);
  CARAVAN_CHECK(std::ssize(layers) == count, InputError,
                "{}: {} cross-attention layers do not spread over {} layers in equal steps",
                json.where(), count, num_layers);
  std::reverse(layers.begin(), layers.end());
  return layers;
}

void take_encoder_sizes(const JsonReader& sizes, model::VisionConfig& vision) {
  vision.width = sizes.need_integer("width");
  vision.num_heads = sizes.need_integer("heads");
  vision.num_local_layers = sizes.need_integer("local_layers");
  vision.num_global_layers = sizes.need_integer("global_layers");
  vision.patch_size = sizes.need_integer("patch");
  vision.saved_layers = sizes.integers("intermediate_layers").value_or(std::vector<std::int64_t>());
}

}  // namespace

std::optional<model::VisionConfig> read_meta_vision(const JsonReader& json, std::int64_t num_layers,
                                                    const std::optional<JsonReader>& encoder) {
  const auto nested = json.object("vision_model");
  auto tile_size = json.integer("vision_chunk_size");
  if (!tile_size && nested) tile_size = nested->integer("vision_chunk_size");
  if (!nested && tile_size.value_or(-1) <= 0) return std::nullopt;
  CARAVAN_CHECK(tile_size.value_or(-1) > 0, InputError,
                "{}: \"vision_chunk_size\" is missing, the side of an image tile in pixels",
                json.where());
  const std::int64_t max_tiles = json.integer("vision_max_num_chunks").value_or(model::kMaxTiles);
  CARAVAN_CHECK(max_tiles == model::kMaxTiles, InputError,
                "{}: \"vision_max_num_chunks\" is {}, expected {}", json.where(), max_tiles,
                model::kMaxTiles);
  model::VisionConfig vision;
  vision.tile_size = *tile_size;
  vision.patch_size = 14;
  vision.width = 1280;
  vision.num_heads = 16;
  vision.num_local_layers = 32;
  vision.num_global_layers = 8;
  vision.saved_layers = {3, 7, 15, 23, 30};
  vision.cross_layers = cross_layers(json, num_layers);
  if (encoder) take_encoder_sizes(*encoder, vision);
  CARAVAN_CHECK(vision.width > 0 && vision.width <= 65536, InputError,
                "{}: the width of the encoder is {}, expected 1 to 65536", json.where(),
                vision.width);
  vision.ffn_size = 4 * vision.width;
  return vision;
}

}  // namespace caravan::checkpoint
