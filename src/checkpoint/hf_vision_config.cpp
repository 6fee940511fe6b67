#include "hf_vision_config.h"

#include <string>
#include <vector>

#include "caravan/core/error.h"
#include "caravan/core/json_reader.h"

namespace caravan::checkpoint {
namespace {

// Indices among all layers, in increasing order, to the self-attention layers that they precede.
std::vector<std::int64_t> cross_layers(const JsonReader& text, std::int64_t num_all_layers) {
  const std::vector<std::int64_t> combined =
      text.integers("cross_attention_layers")
          .value_or(std::vector<std::int64_t>{3, 8, 13, 18, 23, 28, 33, 38});
  std::vector<std::int64_t> result;
  for (std::size_t i = 0; i < combined.size(); ++i) {
    const auto before = static_cast<std::int64_t>(i);
    const bool sound = combined[i] >= before && combined[i] < num_all_layers &&
                       (i == 0 || combined[i] > combined[i - 1]);
    CARAVAN_CHECK(
        sound, InputError,
        "{}: \"cross_attention_layers\" is [{}], expected increasing numbers below the {} "
        "layers",
        text.where(), fmt::join(combined, ", "), num_all_layers);
    result.push_back(combined[i] - before);
  }
  return result;
}

template <typename T>
void expect(const JsonReader& json, const char* name, const T& found, const T& expected) {
  CARAVAN_CHECK(found == expected, InputError, "{}: \"{}\" is {}, expected {}", json.where(), name,
                found, expected);
}

// The order of the grids is that of the rows of the tile tables.
void check_grids(const JsonReader& json) {
  const Json* found = json.find("supported_aspect_ratios");
  if (found == nullptr) return;
  Json expected = Json::array();
  for (const model::TileGrid& grid : model::kTileGrids)
    expected.push_back({grid.down, grid.across});
  CARAVAN_CHECK(*found == expected, InputError,
                "{}: \"supported_aspect_ratios\" is {}, expected {}", json.where(),
                short_json(*found), short_json(expected));
}

}  // namespace

void read_hf_vision_config(const JsonReader& json, const JsonReader& text,
                           model::LlamaConfig& config) {
  const auto object = json.object("vision_config");
  CARAVAN_CHECK(object.has_value(), InputError,
                "{}: \"vision_config\" is missing, which describes the image encoder",
                json.where());
  const JsonReader& encoder = *object;
  for (const char* name : {"attention_bias", "mlp_bias"})
    expect(text, name, text.boolean(name).value_or(false), false);
  // The embedding has rows that the head has not.
  expect(text, "tie_word_embeddings", config.tied_embeddings, false);
  expect(encoder, "max_num_tiles", encoder.integer("max_num_tiles").value_or(model::kMaxTiles),
         model::kMaxTiles);
  expect(encoder, "num_channels", encoder.integer("num_channels").value_or(3), std::int64_t{3});
  expect(encoder, "hidden_act", encoder.text("hidden_act").value_or("gelu"), std::string("gelu"));
  check_grids(encoder);

  // Absent fields mean the defaults of MllamaVisionConfig in transformers.
  model::VisionConfig vision;
  vision.tile_size = encoder.integer("image_size").value_or(448);
  vision.patch_size = encoder.integer("patch_size").value_or(14);
  vision.width = encoder.integer("hidden_size").value_or(1280);
  vision.num_heads = encoder.integer("attention_heads")
                         .value_or(encoder.integer("num_attention_heads").value_or(16));
  vision.ffn_size = encoder.integer("intermediate_size").value_or(5120);
  vision.num_local_layers = encoder.integer("num_hidden_layers").value_or(32);
  vision.num_global_layers = encoder.integer("num_global_layers").value_or(8);
  vision.saved_layers = encoder.integers("intermediate_layers_indices")
                            .value_or(std::vector<std::int64_t>{3, 7, 15, 23, 30});
  vision.norm_epsilon = encoder.real("norm_eps").value_or(1e-5);
  vision.cross_layers = cross_layers(text, config.num_layers);
  vision.image_token_id = json.integer("image_token_index")
                              .value_or(json.integer("image_token_id").value_or(config.vocab_size));
  config.num_layers -= vision.num_cross_layers();
  config.vision = vision;
  if (!config.problems().empty()) return;  // reported by the caller, with those of the decoder
  const auto outputs = encoder.integer("vision_output_dim");
  if (outputs) expect(encoder, "vision_output_dim", *outputs, vision.feature_size());
}

}  // namespace caravan::checkpoint
