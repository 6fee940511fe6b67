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

// The fields of each description with their names, once for reading and writing.
template <typename Scaling, typename Visit>
void visit_scaling(Scaling& scaling, const Visit& visit) {
  visit("factor", scaling.factor);
  visit("low_freq_factor", scaling.low_freq_factor);
  visit("high_freq_factor", scaling.high_freq_factor);
  visit("original_max_positions", scaling.original_max_positions);
}

template <typename Vision, typename Visit>
void visit_vision(Vision& vision, const Visit& visit) {
  visit("tile_size", vision.tile_size);
  visit("patch_size", vision.patch_size);
  visit("width", vision.width);
  visit("num_heads", vision.num_heads);
  visit("ffn_size", vision.ffn_size);
  visit("num_local_layers", vision.num_local_layers);
  visit("num_global_layers", vision.num_global_layers);
  visit("saved_layers", vision.saved_layers);
  visit("norm_epsilon", vision.norm_epsilon);
  visit("cross_layers", vision.cross_layers);
  visit("image_token_id", vision.image_token_id);
  visit("extra_embeddings", vision.extra_embeddings);
}

template <typename Config, typename Visit>
void visit_text(Config& config, const Visit& visit) {
  visit("vocab_size", config.vocab_size);
  visit("hidden_size", config.hidden_size);
  visit("ffn_size", config.ffn_size);
  visit("num_layers", config.num_layers);
  visit("num_heads", config.num_heads);
  visit("num_kv_heads", config.num_kv_heads);
  visit("head_dim", config.head_dim);
  visit("max_positions", config.max_positions);
  visit("norm_epsilon", config.norm_epsilon);
  visit("rope_theta", config.rope_theta);
  visit("rope_divisors", config.rope_divisors);
  visit("tied_embeddings", config.tied_embeddings);
  visit("attention_bias", config.attention_bias);
  visit("mlp_bias", config.mlp_bias);
}

/// Fields that must all be there.
class FieldReader {
 public:
  explicit FieldReader(const JsonReader& fields) : fields_(fields) {}
  void operator()(const char* name, std::int64_t& value) const {
    value = fields_.need_integer(name);
  }
  void operator()(const char* name, double& value) const { value = fields_.need_real(name); }
  void operator()(const char* name, bool& value) const { value = fields_.need_boolean(name); }
  void operator()(const char* name, std::vector<std::int64_t>& values) const {
    values = fields_.need_integers(name);
  }
  void operator()(const char* name, std::vector<float>& values) const {
    for (const double value : fields_.need_reals(name)) values.push_back(static_cast<float>(value));
  }

 private:
  const JsonReader& fields_;
};

auto writer(Json& json) {
  return [&json](const char* name, const auto& value) { json[name] = value; };
}

RopeScaling rope_scaling_from_json(const JsonReader& fields) {
  RopeScaling scaling;
  scaling.kind = scaling_from_name(fields.need_text("kind"));
  visit_scaling(scaling, FieldReader(fields));
  fields.expect_no_others();
  return scaling;
}

VisionConfig vision_from_json(const JsonReader& fields) {
  VisionConfig vision;
  visit_vision(vision, FieldReader(fields));
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
  Json json = {{"architecture", config.vision ? kVisionArchitecture : kTextArchitecture}};
  visit_text(config, writer(json));
  Json& scaling = json["rope_scaling"];
  scaling["kind"] = kScalingNames[static_cast<int>(config.rope_scaling.kind)];
  visit_scaling(config.rope_scaling, writer(scaling));
  if (config.vision) visit_vision(*config.vision, writer(json["vision"]));
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
  visit_text(config, FieldReader(fields));
  config.rope_scaling = rope_scaling_from_json(fields.need_object("rope_scaling"));
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
