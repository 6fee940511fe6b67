#include "caravan/model/config.h"

#include <cmath>

#include "caravan/core/error.h"
#include "caravan/core/json_reader.h"

namespace caravan::model {
namespace {

constexpr std::int64_t kMaxSize = std::int64_t{1}
                                  << 24;  // any one dimension; products stay below 2^63
constexpr std::int64_t kMaxLayers = 4096;

constexpr const char* kTextArchitecture = "llama";
constexpr const char* kVisionArchitecture = "mllama";

constexpr const char* kScalingNames[] = {"none", "linear", "llama3"};

RopeScalingKind scaling_from_name(const std::string& name) {
  for (const auto kind :
       {RopeScalingKind::kNone, RopeScalingKind::kLinear, RopeScalingKind::kLlama3}) {
    if (name == kScalingNames[static_cast<int>(kind)]) return kind;
  }
  throw ConfigError(fmt::format(
      "model description: rope_scaling.kind is \"{}\", expected none, linear or llama3", name));
}

RopeScaling rope_scaling_from_json(const JsonReader& fields) {
  RopeScaling scaling;
  scaling.kind = scaling_from_name(fields.need_text("kind"));
  scaling.factor = fields.need_real("factor");
  scaling.low_freq_factor = fields.need_real("low_freq_factor");
  scaling.high_freq_factor = fields.need_real("high_freq_factor");
  scaling.original_max_positions = fields.need_integer("original_max_positions");
  fields.expect_no_others();
  return scaling;
}

Json vision_to_json(const VisionConfig& vision) {
  return {{"tile_size", vision.tile_size},
          {"patch_size", vision.patch_size},
          {"width", vision.width},
          {"num_heads", vision.num_heads},
          {"ffn_size", vision.ffn_size},
          {"num_local_layers", vision.num_local_layers},
          {"num_global_layers", vision.num_global_layers},
          {"saved_layers", vision.saved_layers},
          {"norm_epsilon", vision.norm_epsilon},
          {"cross_layers", vision.cross_layers},
          {"image_token_id", vision.image_token_id},
          {"extra_embeddings", vision.extra_embeddings}};
}

VisionConfig vision_from_json(const JsonReader& fields) {
  VisionConfig vision;
  vision.tile_size = fields.need_integer("tile_size");
  vision.patch_size = fields.need_integer("patch_size");
  vision.width = fields.need_integer("width");
  vision.num_heads = fields.need_integer("num_heads");
  vision.ffn_size = fields.need_integer("ffn_size");
  vision.num_local_layers = fields.need_integer("num_local_layers");
  vision.num_global_layers = fields.need_integer("num_global_layers");
  vision.saved_layers = fields.need_integers("saved_layers");
  vision.norm_epsilon = fields.need_real("norm_epsilon");
  vision.cross_layers = fields.need_integers("cross_layers");
  vision.image_token_id = fields.need_integer("image_token_id");
  vision.extra_embeddings = fields.need_integer("extra_embeddings");
  fields.expect_no_others();
  return vision;
}

void check_sizes(const LlamaConfig& config, std::vector<std::string>& problems) {
  const struct {
    const char* name;
    std::int64_t value;
    std::int64_t limit;
  } sizes[] = {{"vocab_size", config.vocab_size, kMaxSize},
               {"hidden_size", config.hidden_size, kMaxSize},
               {"ffn_size", config.ffn_size, kMaxSize},
               {"num_layers", config.num_layers, kMaxLayers},
               {"num_heads", config.num_heads, 65536},
               {"num_kv_heads", config.num_kv_heads, 65536},
               {"head_dim", config.head_dim, 4096},
               {"max_positions", config.max_positions, kMaxSize}};
  for (const auto& size : sizes) {
    if (size.value < 1 || size.value > size.limit) {
      problems.push_back(
          fmt::format("{} must be 1 to {}, found {}", size.name, size.limit, size.value));
    }
  }
}

void check_rope(const LlamaConfig& config, std::vector<std::string>& problems) {
  if (config.head_dim % 2 != 0) {
    problems.push_back(fmt::format("head_dim must be even, found {}", config.head_dim));
  }
  if (!(config.rope_theta > 0) || !std::isfinite(config.rope_theta)) {
    problems.push_back(fmt::format("rope_theta must be positive, found {}", config.rope_theta));
  }
  const RopeScaling& scaling = config.rope_scaling;
  if (scaling.kind != RopeScalingKind::kNone &&
      (!(scaling.factor >= 1) || !std::isfinite(scaling.factor))) {
    problems.push_back(
        fmt::format("rope_scaling.factor must be at least 1, found {}", scaling.factor));
  }
  if (scaling.kind == RopeScalingKind::kLlama3 &&
      (!(scaling.low_freq_factor > 0) || !(scaling.high_freq_factor > scaling.low_freq_factor) ||
       !std::isfinite(scaling.high_freq_factor) || scaling.original_max_positions < 1)) {
    problems.push_back(fmt::format(
        "rope_scaling llama3 needs 0 < low_freq_factor < high_freq_factor and a positive "
        "original_max_positions, found {}, {} and {}",
        scaling.low_freq_factor, scaling.high_freq_factor, scaling.original_max_positions));
  }
  if (!config.rope_divisors.empty() && std::ssize(config.rope_divisors) != config.head_dim / 2) {
    problems.push_back(fmt::format("rope_divisors must have head_dim / 2 = {} values, found {}",
                                   config.head_dim / 2, config.rope_divisors.size()));
  }
  for (const float divisor : config.rope_divisors) {
    if (!(divisor > 0) || !std::isfinite(divisor)) {
      problems.push_back(fmt::format("rope_divisors must be positive, found {}", divisor));
      break;
    }
  }
}

}  // namespace

std::vector<std::string> LlamaConfig::problems() const {
  std::vector<std::string> problems;
  check_sizes(*this, problems);
  check_rope(*this, problems);
  if (num_kv_heads > 0 && num_heads % num_kv_heads != 0) {
    problems.push_back(fmt::format("num_heads ({}) must be a multiple of num_kv_heads ({})",
                                   num_heads, num_kv_heads));
  }
  if (!(norm_epsilon > 0) || !(norm_epsilon < 1)) {
    problems.push_back(fmt::format("norm_epsilon must be between 0 and 1, found {}", norm_epsilon));
  }
  if (vision) {
    for (std::string& problem : vision->problems(num_layers, vocab_size)) {
      problems.push_back(std::move(problem));
    }
  }
  return problems;
}

std::string to_json(const LlamaConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  Json json = {{"architecture", config.vision ? kVisionArchitecture : kTextArchitecture},
               {"vocab_size", config.vocab_size},
               {"hidden_size", config.hidden_size},
               {"ffn_size", config.ffn_size},
               {"num_layers", config.num_layers},
               {"num_heads", config.num_heads},
               {"num_kv_heads", config.num_kv_heads},
               {"head_dim", config.head_dim},
               {"max_positions", config.max_positions},
               {"norm_epsilon", config.norm_epsilon},
               {"rope_theta", config.rope_theta},
               {"rope_scaling",
                {{"kind", kScalingNames[static_cast<int>(scaling.kind)]},
                 {"factor", scaling.factor},
                 {"low_freq_factor", scaling.low_freq_factor},
                 {"high_freq_factor", scaling.high_freq_factor},
                 {"original_max_positions", scaling.original_max_positions}}},
               {"rope_divisors", config.rope_divisors},
               {"tied_embeddings", config.tied_embeddings},
               {"attention_bias", config.attention_bias},
               {"mlp_bias", config.mlp_bias}};
  if (config.vision) json["vision"] = vision_to_json(*config.vision);
  return json.dump(1);
}

LlamaConfig llama_config_from_json(const std::string& text) try {
  const Json json = parse_json(text, "model description");
  const JsonReader fields(json, "model description");
  const std::string architecture = fields.need_text("architecture");
  CARAVAN_CHECK(architecture == kTextArchitecture || architecture == kVisionArchitecture,
                ConfigError,
                "model description: architecture is \"{}\", this version runs \"{}\" and \"{}\"",
                architecture, kTextArchitecture, kVisionArchitecture);
  LlamaConfig config;
  config.vocab_size = fields.need_integer("vocab_size");
  config.hidden_size = fields.need_integer("hidden_size");
  config.ffn_size = fields.need_integer("ffn_size");
  config.num_layers = fields.need_integer("num_layers");
  config.num_heads = fields.need_integer("num_heads");
  config.num_kv_heads = fields.need_integer("num_kv_heads");
  config.head_dim = fields.need_integer("head_dim");
  config.max_positions = fields.need_integer("max_positions");
  config.norm_epsilon = fields.need_real("norm_epsilon");
  config.rope_theta = fields.need_real("rope_theta");
  config.rope_scaling = rope_scaling_from_json(fields.need_object("rope_scaling"));
  for (const double divisor : fields.need_reals("rope_divisors"))
    config.rope_divisors.push_back(static_cast<float>(divisor));
  config.tied_embeddings = fields.need_boolean("tied_embeddings");
  config.attention_bias = fields.need_boolean("attention_bias");
  config.mlp_bias = fields.need_boolean("mlp_bias");
  if (architecture == kVisionArchitecture)
    config.vision = vision_from_json(fields.need_object("vision"));
  fields.expect_no_others();
  return config;
} catch (const InputError& error) {
  throw ConfigError(error.what());  // not of an input file, but of the checkpoint
}

std::vector<float> rope_inverse_frequencies(const LlamaConfig& config) {
  // long double: the C library has one x87 version of these functions, not one per CPU kind, and a
  // last-bit difference in 64 bits of mantissa does not survive the rounding to float32.
  using Extended = long double;
  const RopeScaling& scaling = config.rope_scaling;
  std::vector<float> frequencies;
  for (std::int64_t pair = 0; pair < config.head_dim / 2; ++pair) {
    const Extended exponent =
        static_cast<Extended>(2 * pair) / static_cast<Extended>(config.head_dim);
    Extended frequency = 1 / std::pow(static_cast<Extended>(config.rope_theta), exponent);
    if (!config.rope_divisors.empty()) {
      frequency /= static_cast<Extended>(config.rope_divisors[static_cast<std::size_t>(pair)]);
    }
    const auto factor = static_cast<Extended>(scaling.factor);
    switch (scaling.kind) {
      case RopeScalingKind::kNone: break;
      case RopeScalingKind::kLinear: frequency /= factor; break;
      case RopeScalingKind::kLlama3: {
        const auto low = static_cast<Extended>(scaling.low_freq_factor);
        const auto high = static_cast<Extended>(scaling.high_freq_factor);
        const auto original = static_cast<Extended>(scaling.original_max_positions);
        const Extended wavelength = 2 * std::acos(Extended{-1}) / frequency;
        if (wavelength > original / low) {
          frequency /= factor;
        } else if (wavelength >= original / high) {
          const Extended smooth = (original / wavelength - low) / (high - low);
          frequency = (1 - smooth) * frequency / factor + smooth * frequency;
        }
        break;
      }
    }
    frequencies.push_back(static_cast<float>(frequency));
  }
  return frequencies;
}

}  // namespace caravan::model
