#include "caravan/checkpoint/tune_config.h"

#include "caravan/core/error.h"
#include "caravan/core/json_reader.h"
#include "caravan/core/partition.h"

namespace caravan::checkpoint {
namespace {

constexpr std::int64_t kMaxLayers = 4096;
constexpr std::int64_t kMaxSize = std::int64_t{1} << 24;

void expect(const JsonReader& json, const char* name, std::int64_t expected) {
  const std::int64_t found = json.integer(name).value_or(expected);
  CARAVAN_CHECK(found == expected, InputError, "{}: \"{}\" is {}, expected {}", json.where(), name,
                found, expected);
}

// Two thirds of 4 * width, rounded up, where the builder is not told.
std::int64_t ffn_size(const JsonReader& decoder, std::int64_t hidden_size) {
  constexpr std::int64_t kMultiple = 256;
  return decoder.integer("intermediate_dim")
      .value_or(round_up(4 * (2 * hidden_size / 3), kMultiple));
}

model::LlamaConfig read_decoder(const JsonReader& decoder) {
  model::LlamaConfig config;
  config.vocab_size = decoder.need_integer("vocab_size");
  config.num_layers = decoder.need_integer("num_layers");
  config.num_heads = decoder.need_integer("num_heads");
  config.num_kv_heads = decoder.need_integer("num_kv_heads");
  config.hidden_size = decoder.need_integer("embed_dim");
  config.max_positions = decoder.need_integer("max_seq_len");
  config.rope_theta = decoder.real("rope_base").value_or(500000);
  config.rope_scaling = {model::RopeScalingKind::kLlama3, 8, 1, 4, 8192};
  config.norm_epsilon = 1e-5;
  CARAVAN_CHECK(config.num_heads > 0 && config.hidden_size > 0 && config.hidden_size <= kMaxSize &&
                    config.hidden_size % config.num_heads == 0,
                InputError,
                "{}: embed_dim ({}) must be a multiple of num_heads ({}) and at most {}",
                decoder.where(), config.hidden_size, config.num_heads, kMaxSize);
  config.head_dim = config.hidden_size / config.num_heads;
  config.ffn_size = ffn_size(decoder, config.hidden_size);
  return config;
}

model::VisionConfig read_encoder(const JsonReader& encoder) {
  expect(encoder, "max_num_tiles", model::kMaxTiles);
  expect(encoder, "in_channels", 3);
  model::VisionConfig vision;
  vision.tile_size = encoder.need_integer("tile_size");
  vision.patch_size = encoder.need_integer("patch_size");
  vision.width = encoder.need_integer("clip_embed_dim");
  vision.num_heads = encoder.need_integer("num_heads");
  vision.num_local_layers = encoder.need_integer("clip_num_layers");
  vision.num_global_layers = encoder.need_integer("num_layers_projection");
  vision.saved_layers =
      encoder.integers("clip_hidden_states").value_or(std::vector<std::int64_t>());
  CARAVAN_CHECK(vision.width > 0 && vision.width <= 65536, InputError,
                "{}: \"clip_embed_dim\" is {}, expected 1 to 65536", encoder.where(), vision.width);
  vision.ffn_size = 4 * vision.width;
  return vision;
}

}  // namespace

model::LlamaConfig parse_builder_args(const std::string& text, const std::string& where) {
  const Json parsed = parse_json(text, where);
  const JsonReader json(parsed, where);
  const JsonReader encoder = json.need_object("encoder");
  const JsonReader decoder = json.need_object("decoder");
  model::LlamaConfig config = read_decoder(decoder);
  model::VisionConfig vision = read_encoder(encoder);
  expect(encoder, "decoder_embed_dim", config.hidden_size);
  const std::int64_t interval = decoder.need_integer("fusion_interval");
  CARAVAN_CHECK(interval > 0 && config.num_layers <= kMaxLayers, InputError,
                "{}: a fusion_interval of {} in {} layers is not possible", decoder.where(),
                interval, config.num_layers);
  for (std::int64_t layer = interval - 1; layer < config.num_layers; layer += interval)
    vision.cross_layers.push_back(layer);
  vision.extra_embeddings = decoder.integer("num_special_tokens").value_or(8);
  vision.image_token_id = config.vocab_size;
  config.vision = vision;
  if (const auto problems = config.problems(); !problems.empty())
    throw InputError(fmt::format("{}: {}", where, fmt::join(problems, "; ")));
  return config;
}

}  // namespace caravan::checkpoint
