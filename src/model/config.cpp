#include "caravan/model/config.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "caravan/core/error.h"

namespace caravan::model {
namespace {

using Json = nlohmann::json;

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

/// Reads typed fields of one JSON object and notices those that nobody asked for.
class FieldReader {
 public:
  FieldReader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    CARAVAN_CHECK(object.is_object(), ConfigError, "{} must be a JSON object, found {}", where_,
                  object.type_name());
  }

  const Json& get(const char* name) {
    const auto found = object_.find(name);
    CARAVAN_CHECK(found != object_.end(), ConfigError, "{}: the field \"{}\" is missing", where_,
                  name);
    seen_.insert(name);
    return *found;
  }
  std::int64_t integer(const char* name) {
    const Json& value = get(name);
    CARAVAN_CHECK(value.is_number_integer(), ConfigError, "{}: \"{}\" must be an integer, found {}",
                  where_, name, value.dump());
    return value.get<std::int64_t>();
  }
  double number(const char* name) {
    const Json& value = get(name);
    CARAVAN_CHECK(value.is_number(), ConfigError, "{}: \"{}\" must be a number, found {}", where_,
                  name, value.dump());
    return value.get<double>();
  }
  bool boolean(const char* name) {
    const Json& value = get(name);
    CARAVAN_CHECK(value.is_boolean(), ConfigError, "{}: \"{}\" must be true or false, found {}",
                  where_, name, value.dump());
    return value.get<bool>();
  }
  std::vector<std::int64_t> integers(const char* name) {
    const Json& value = get(name);
    CARAVAN_CHECK(value.is_array(), ConfigError, "{}: \"{}\" must be an array, found {}", where_,
                  name, value.dump());
    std::vector<std::int64_t> result;
    for (const Json& entry : value) {
      CARAVAN_CHECK(entry.is_number_integer(), ConfigError,
                    "{}: \"{}\" must hold integers, found {}", where_, name, entry.dump());
      result.push_back(entry.get<std::int64_t>());
    }
    return result;
  }
  void expect_no_others() const {
    for (const auto& [name, value] : object_.items()) {
      CARAVAN_CHECK(seen_.contains(name), ConfigError, "{}: unknown field \"{}\"", where_, name);
    }
  }

 private:
  const Json& object_;
  std::string where_;
  std::set<std::string> seen_;
};

RopeScaling rope_scaling_from_json(const Json& json) {
  FieldReader fields(json, "model description, rope_scaling");
  RopeScaling scaling;
  const Json& kind = fields.get("kind");
  CARAVAN_CHECK(kind.is_string(), ConfigError,
                "model description: rope_scaling.kind must be a text, found {}", kind.dump());
  scaling.kind = scaling_from_name(kind.get<std::string>());
  scaling.factor = fields.number("factor");
  scaling.low_freq_factor = fields.number("low_freq_factor");
  scaling.high_freq_factor = fields.number("high_freq_factor");
  scaling.original_max_positions = fields.integer("original_max_positions");
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

VisionConfig vision_from_json(const Json& json) {
  FieldReader fields(json, "model description, vision");
  VisionConfig vision;
  vision.tile_size = fields.integer("tile_size");
  vision.patch_size = fields.integer("patch_size");
  vision.width = fields.integer("width");
  vision.num_heads = fields.integer("num_heads");
  vision.ffn_size = fields.integer("ffn_size");
  vision.num_local_layers = fields.integer("num_local_layers");
  vision.num_global_layers = fields.integer("num_global_layers");
  vision.saved_layers = fields.integers("saved_layers");
  vision.norm_epsilon = fields.number("norm_epsilon");
  vision.cross_layers = fields.integers("cross_layers");
  vision.image_token_id = fields.integer("image_token_id");
  vision.extra_embeddings = fields.integer("extra_embeddings");
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

LlamaConfig llama_config_from_json(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  CARAVAN_CHECK(!json.is_discarded(), ConfigError, "the model description is not valid JSON");
  FieldReader fields(json, "model description");
  const Json& architecture = fields.get("architecture");
  CARAVAN_CHECK(architecture == kTextArchitecture || architecture == kVisionArchitecture,
                ConfigError,
                "model description: architecture is {}, this version runs \"{}\" and \"{}\"",
                architecture.dump(), kTextArchitecture, kVisionArchitecture);
  LlamaConfig config;
  config.vocab_size = fields.integer("vocab_size");
  config.hidden_size = fields.integer("hidden_size");
  config.ffn_size = fields.integer("ffn_size");
  config.num_layers = fields.integer("num_layers");
  config.num_heads = fields.integer("num_heads");
  config.num_kv_heads = fields.integer("num_kv_heads");
  config.head_dim = fields.integer("head_dim");
  config.max_positions = fields.integer("max_positions");
  config.norm_epsilon = fields.number("norm_epsilon");
  config.rope_theta = fields.number("rope_theta");
  config.rope_scaling = rope_scaling_from_json(fields.get("rope_scaling"));
  const Json& divisors = fields.get("rope_divisors");
  CARAVAN_CHECK(divisors.is_array(), ConfigError,
                "model description: rope_divisors must be an array");
  for (const Json& divisor : divisors) {
    CARAVAN_CHECK(divisor.is_number(), ConfigError,
                  "model description: rope_divisors must hold numbers, found {}", divisor.dump());
    config.rope_divisors.push_back(divisor.get<float>());
  }
  config.tied_embeddings = fields.boolean("tied_embeddings");
  config.attention_bias = fields.boolean("attention_bias");
  config.mlp_bias = fields.boolean("mlp_bias");
  if (architecture == kVisionArchitecture) config.vision = vision_from_json(fields.get("vision"));
  fields.expect_no_others();
  return config;
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
