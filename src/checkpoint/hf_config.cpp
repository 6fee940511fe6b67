#include "caravan/checkpoint/hf_config.h"

#include <cmath>
#include <string_view>

#include "caravan/core/error.h"
#include "caravan/core/json_reader.h"
#include "hf_vision_config.h"

namespace caravan::checkpoint {
namespace {

// Vocabularies from here on are of the Llama 3 kind, whose rotary base is never the class default.
constexpr std::int64_t kLlama3VocabSize = 100000;

// Mistral 7B is a Llama but for its sliding window, which later versions do not have.
bool is_mistral(const JsonReader& json) { return json.text("model_type") == "mistral"; }

void check_sliding_window(const JsonReader& json, std::int64_t max_positions) {
  if (!is_mistral(json) || (json.has("sliding_window") && json.find("sliding_window") == nullptr))
    return;
  const std::int64_t window = json.integer("sliding_window").value_or(4096);
  CARAVAN_CHECK(window >= max_positions, InputError,
                "{}: the model attends to a sliding window of {} positions (Mistral 0.1), which is "
                "not supported; 0.2 and later have none",
                json.where(), window);
}

// The architecture that belongs to each model_type.
std::string_view architecture_of(std::string_view model_type) {
  if (model_type == "mistral") return "MistralForCausalLM";
  return model_type == "mllama" ? "MllamaForConditionalGeneration" : "LlamaForCausalLM";
}

// Of the whole file.
void check_architecture(const JsonReader& json, const std::string& type) {
  CARAVAN_CHECK(type != "mllama_text_model", InputError,
                "{}: this is the text part alone of a Llama vision model (model_type \"{}\"); "
                "convert the whole model, which answers requests without images as well",
                json.where(), type);
  CARAVAN_CHECK(type == "llama" || type == "mistral" || type == "mllama", InputError,
                "{}: model_type is \"{}\", expected \"llama\" or \"mllama\": this is another "
                "architecture, and Caravan runs Llama models (and Mistral's without a sliding "
                "window) only",
                json.where(), type);
  if (const Json* names = json.find("architectures"); names != nullptr && names->is_array()) {
    const std::string expected(architecture_of(type));
    for (const Json& name : *names) {
      CARAVAN_CHECK(name == expected, InputError, "{}: the architecture is {}, expected \"{}\"",
                    json.where(), short_json(name), expected);
    }
  }
}

// MLX names no method, under the one key or the other.
void refuse_quantized(const JsonReader& json) {
  for (const char* key : {"quantization_config", "quantization"}) {
    const auto quantization = json.object(key);
    if (!quantization) continue;
    const bool is_mlx = quantization->has("group_size") && quantization->has("bits");
    throw InputError(fmt::format(
        "{}: the checkpoint is quantized ({}); convert the unquantized model or a GGUF of it",
        json.where(),
        quantization->text("quant_method").value_or(is_mlx ? "MLX" : "unknown method")));
  }
}

// Of the part that describes the decoder.
void check_supported(const JsonReader& json) {
  refuse_quantized(json);
  const std::string activation = json.text("hidden_act").value_or("silu");
  CARAVAN_CHECK(activation == "silu" || activation == "swish", InputError,
                "{}: hidden_act is \"{}\", expected \"silu\"", json.where(), activation);
  const double rotary_part = json.real("partial_rotary_factor").value_or(1.0);
  CARAVAN_CHECK(rotary_part == 1.0, InputError,
                "{}: partial_rotary_factor is {}, expected 1 (all of a head is rotated)",
                json.where(), rotary_part);
}

model::RopeScaling read_scaling(const JsonReader& json, std::int64_t max_positions) {
  const std::string type = json.text("rope_type").value_or(json.text("type").value_or("default"));
  model::RopeScaling scaling;
  if (type == "default") return scaling;
  if (type == "linear") {
    scaling.kind = model::RopeScalingKind::kLinear;
  } else if (type == "llama3") {
    scaling.kind = model::RopeScalingKind::kLlama3;
    scaling.low_freq_factor = json.need_real("low_freq_factor");
    scaling.high_freq_factor = json.need_real("high_freq_factor");
    scaling.original_max_positions =
        json.integer("original_max_position_embeddings").value_or(max_positions);
  } else {
    throw InputError(
        fmt::format("{}: the rotary scaling is of type \"{}\", expected default, linear or llama3",
                    json.where(), type));
  }
  scaling.factor = json.need_real("factor");
  return scaling;
}

void read_rope(const JsonReader& json, model::LlamaConfig& config) {
  const auto parameters = json.object("rope_parameters");
  const auto scaling = json.object("rope_scaling");
  std::optional<double> theta = json.real("rope_theta");
  for (const auto* nested : {&parameters, &scaling}) {
    if (!nested->has_value()) continue;
    if (!theta) theta = (*nested)->real("rope_theta");
    if (config.rope_scaling.kind == model::RopeScalingKind::kNone)
      config.rope_scaling = read_scaling(**nested, config.max_positions);
    const double rotary_part = (*nested)->real("partial_rotary_factor").value_or(1.0);
    CARAVAN_CHECK(rotary_part == 1.0, InputError, "{}: partial_rotary_factor is {}, expected 1",
                  (*nested)->where(), rotary_part);
  }
  const bool like_llama3 = config.vocab_size >= kLlama3VocabSize ||
                           config.rope_scaling.kind == model::RopeScalingKind::kLlama3;
  CARAVAN_CHECK(theta.has_value() || !like_llama3, InputError,
                "{}: rope_theta is missing (it is 500000 for Llama 3); add it to the file",
                json.where());
  config.rope_theta = theta.value_or(10000.0);
}

// What absent fields mean: the defaults of the classes in transformers.
struct ClassDefaults {
  std::int64_t vocab_size;
  std::int64_t ffn_size;
  std::int64_t num_layers;
  std::int64_t num_kv_heads;  // 0: as many as query heads
  std::int64_t max_positions;
  double norm_epsilon;
};
constexpr ClassDefaults kLlama = {32000, 11008, 32, 0, 2048, 1e-6};
constexpr ClassDefaults kMistral = {32000, 14336, 32, 8, 131072, 1e-6};
constexpr ClassDefaults kMllamaText = {128256, 14336, 40, 8, 131072, 1e-5};

model::LlamaConfig read_decoder(const JsonReader& json, const ClassDefaults& defaults) {
  const std::string& where = json.where();
  check_supported(json);
  model::LlamaConfig config;
  config.vocab_size = json.integer("vocab_size").value_or(defaults.vocab_size);
  config.hidden_size = json.integer("hidden_size").value_or(4096);
  config.ffn_size = json.integer("intermediate_size").value_or(defaults.ffn_size);
  config.num_layers = json.integer("num_hidden_layers").value_or(defaults.num_layers);
  config.num_heads = json.integer("num_attention_heads").value_or(32);
  config.num_kv_heads =
      json.integer("num_key_value_heads")
          .value_or(defaults.num_kv_heads > 0 ? defaults.num_kv_heads : config.num_heads);
  CARAVAN_CHECK(config.num_heads > 0, InputError, "{}: num_attention_heads is {}", where,
                config.num_heads);
  const auto head_dim = json.integer("head_dim");
  CARAVAN_CHECK(head_dim.has_value() || config.hidden_size % config.num_heads == 0, InputError,
                "{}: hidden_size ({}) must be a multiple of num_attention_heads ({}) where there "
                "is no head_dim",
                where, config.hidden_size, config.num_heads);
  config.head_dim = head_dim.value_or(config.hidden_size / config.num_heads);
  config.max_positions = json.integer("max_position_embeddings").value_or(defaults.max_positions);
  config.norm_epsilon = json.real("rms_norm_eps").value_or(defaults.norm_epsilon);
  config.tied_embeddings = json.boolean("tie_word_embeddings").value_or(false);
  config.attention_bias = json.boolean("attention_bias").value_or(false);
  config.mlp_bias = json.boolean("mlp_bias").value_or(false);
  read_rope(json, config);
  return config;
}

HfConfig read_vision_model(const JsonReader& json) {
  check_supported(json);  // the whole is quantized, not a part of it
  const auto text = json.object("text_config");
  CARAVAN_CHECK(text.has_value(), InputError,
                "{}: \"text_config\" is missing, which describes the decoder of a Llama vision "
                "model",
                json.where());
  HfConfig result;
  result.config = read_decoder(*text, kMllamaText);
  read_hf_vision_config(json, *text, result.config);
  result.stop_ids = text->ids("eos_token_id");
  return result;
}

}  // namespace

HfConfig parse_hf_config(const std::string& text, const std::string& where) {
  const Json parsed = parse_json(text, where);
  const JsonReader json(parsed, where);
  const std::string type = json.text("model_type").value_or("llama");
  check_architecture(json, type);
  HfConfig result;
  if (type == "mllama") {
    result = read_vision_model(json);
  } else {
    result.config = read_decoder(json, type == "mistral" ? kMistral : kLlama);
    check_sliding_window(json, result.config.max_positions);
  }
  for (const std::int32_t id : json.ids("eos_token_id")) result.stop_ids.push_back(id);
  if (const auto problems = result.config.problems(); !problems.empty())
    throw InputError(fmt::format("{}: {}", where, fmt::join(problems, "; ")));
  return result;
}

GenerationDefaults parse_generation_config(const std::string& text, const std::string& where) {
  const Json parsed = parse_json(text, where);
  const JsonReader json(parsed, where);
  GenerationDefaults defaults;
  defaults.temperature = json.real("temperature");
  defaults.top_p = json.real("top_p");
  defaults.top_k = json.integer("top_k");
  defaults.repetition_penalty = json.real("repetition_penalty");
  defaults.stop_ids = json.ids("eos_token_id");
  const auto check = [&](bool sound, const char* name, const char* expected) {
    CARAVAN_CHECK(sound, InputError, "{}: \"{}\" must be {}", where, name, expected);
  };
  check(
      !defaults.temperature || (*defaults.temperature >= 0 && std::isfinite(*defaults.temperature)),
      "temperature", "at least 0");
  check(!defaults.top_p || (*defaults.top_p > 0 && *defaults.top_p <= 1), "top_p",
        "above 0 and at most 1");
  check(!defaults.top_k || *defaults.top_k >= 0, "top_k", "at least 0");
  check(!defaults.repetition_penalty ||
            (*defaults.repetition_penalty > 0 && std::isfinite(*defaults.repetition_penalty)),
        "repetition_penalty", "above 0");
  return defaults;
}

}  // namespace caravan::checkpoint
