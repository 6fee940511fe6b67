#include "caravan/checkpoint/tune_config.h"

#include "caravan/core/error.h"
#include "caravan/core/partition.h"
#include "json_reader.h"

namespace caravan::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxLayers = 4096;
constexpr std::int64_t kMaxSize = std::int64_t{1} << 24;

std::int64_t required(const JsonReader& json, const char* name) {
  const auto value = json.integer(name);
  CARAVAN_CHECK(value.has_value(), InputError, "{}: \"{}\" is missing", json.where(), name);
  return *value;
}

JsonReader required_object(const JsonReader& json, const char* name) {
  const auto object = json.object(name);
  CARAVAN_CHECK(object.has_value(), InputError, "{}: \"{}\" is missing", json.where(), name);
  return *object;
}

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
  config.vocab_size = required(decoder, "vocab_size");
  config.num_layers = required(decoder, "num_layers");
  config.num_heads = required(decoder, "num_heads");
  config.num_kv_heads = required(decoder, "num_kv_heads");
  config.hidden_size = required(decoder, "embed_dim");
  config.max_positions = required(decoder, "max_seq_len");
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
  vision.tile_size = required(encoder, "tile_size");
  vision.patch_size = required(encoder, "patch_size");
  vision.width = required(encoder, "clip_embed_dim");
  vision.num_heads = required(encoder, "num_heads");
  vision.num_local_layers = required(encoder, "clip_num_layers");
  vision.num_global_layers = required(encoder, "num_layers_projection");
  vision.saved_layers =
      encoder.integers("clip_hidden_states").value_or(std::vector<std::int64_t>());
  CARAVAN_CHECK(vision.width > 0 && vision.width <= 65536, InputError,
                "{}: \"clip_embed_dim\" is {}, expected 1 to 65536", encoder.where(), vision.width);
  vision.ffn_size = 4 * vision.width;
  return vision;
}

}  // namespace

model::LlamaConfig parse_builder_args(const std::string& text, const std::string& where) {
  const Json parsed = JsonReader::parse(text, where);
  const JsonReader json(parsed, where);
  const JsonReader encoder = required_object(json, "encoder");
  const JsonReader decoder = required_object(json, "decoder");
  model::LlamaConfig config = read_decoder(decoder);
  model::VisionConfig vision = read_encoder(encoder);
  expect(encoder, "decoder_embed_dim", config.hidden_size);
  const std::int64_t interval = required(decoder, "fusion_interval");
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
