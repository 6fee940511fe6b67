#include "caravan/checkpoint/meta_config.h"

#include <cmath>

#include "caravan/core/error.h"
#include "caravan/core/json_reader.h"
#include "caravan/core/partition.h"
#include "meta_vision_config.h"

namespace caravan::checkpoint {
namespace {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 24;

constexpr double kLlama2Theta = 10000;
constexpr double kLlama3Theta = 500000;
constexpr double kCodeLlamaTheta = 1000000;

void refuse_other_models(const JsonReader& json) {
  const auto refuse = [&](const char* what) {
    throw InputError(
        fmt::format("{}: the model is {}, which is not supported", json.where(), what));
  };
  if (json.find("moe") != nullptr || json.find("moe_args") != nullptr)
    refuse("a mixture of experts (Mixtral or Llama 4)");
  if (json.find("sliding_window") != nullptr) refuse("one with a sliding window (Mistral 0.1)");
  if (json.find("quantization_args") != nullptr)
    refuse("a quantized variant (quantization_args); take the bf16 one");
  if (json.find("lora_args") != nullptr) refuse("one with LoRA weights (lora_args)");
}

std::int64_t size(const JsonReader& json, const char* name) {
  const std::int64_t value = json.need_integer(name);
  CARAVAN_CHECK(value > 0 && value <= kMaxSize, InputError, "{}: \"{}\" is {}, expected 1 to {}",
                json.where(), name, value, kMaxSize);
  return value;
}

// Meta's FeedForward: two thirds of 4 * dim, times the multiplier, rounded up.
std::int64_t ffn_size(const JsonReader& json, std::int64_t dim) {
  if (const auto given = json.integer("hidden_dim")) return *given;  // Mistral's dialect
  std::int64_t hidden = 2 * (4 * dim) / 3;
  const double multiplier = json.real("ffn_dim_multiplier").value_or(1.0);
  CARAVAN_CHECK(multiplier > 0 && multiplier < 100, InputError,
                "{}: \"ffn_dim_multiplier\" is {}, expected a small positive number", json.where(),
                multiplier);
  hidden = static_cast<std::int64_t>(multiplier * static_cast<double>(hidden));
  const std::int64_t multiple = json.integer("multiple_of").value_or(256);
  CARAVAN_CHECK(multiple > 0 && multiple <= kMaxSize, InputError,
                "{}: \"multiple_of\" is {}, expected 1 to {}", json.where(), multiple, kMaxSize);
  return round_up(hidden, multiple);
}

// Meta's code scales by 8 whatever the model; the factor of the 3.2 releases is 32.
void read_scaling(const JsonReader& json, MetaParams& params) {
  model::LlamaConfig& config = params.config;
  if (!json.boolean("use_scaled_rope").value_or(false)) return;
  params.is_tied_release = (config.hidden_size == 2048 && config.num_layers == 16) ||
                           (config.hidden_size == 3072 && config.num_layers == 28);
  config.rope_scaling.kind = model::RopeScalingKind::kLlama3;
  config.rope_scaling.factor =
      json.real("rope_scaling_factor").value_or(params.is_tied_release ? 32 : 8);
  config.rope_scaling.low_freq_factor = 1;
  config.rope_scaling.high_freq_factor = 4;
  config.rope_scaling.original_max_positions = 8192;
}

// Meta's code fixes the sizes of the image encoder. Descriptions of models with other ones say them
// in an object of their own, under a name for extensions: "x_..._vision".
std::optional<JsonReader> encoder_sizes(const Json& params, const std::string& where) {
  for (const auto& [name, value] : params.items()) {
    if (name.starts_with("x_") && name.ends_with("_vision") && value.is_object())
      return JsonReader(value, fmt::format("{}, \"{}\"", where, name));
  }
  return std::nullopt;
}

// Meta's Llama 3.1 405B for 16 GPUs names a key-value head for each of them: eight, each twice
// (model-parallel code of llama-models). Weights show that themselves; a plan has none.
constexpr std::int64_t k405bHiddenSize = 16384, k405bLayers = 126, k405bCopiedHeads = 16;

}  // namespace

std::int64_t copies_of_kv_heads(const model::LlamaConfig& config) {
  return config.hidden_size == k405bHiddenSize && config.num_layers == k405bLayers &&
                 config.num_kv_heads == k405bCopiedHeads
             ? 2
             : 1;
}

MetaParams parse_meta_params(const std::string& text, const std::string& where) {
  const Json parsed = parse_json(text, where);
  const JsonReader outer(parsed, where);
  const JsonReader json = outer.object("model").value_or(outer);
  refuse_other_models(json);
  MetaParams params;
  model::LlamaConfig& config = params.config;
  config.hidden_size = size(json, "dim");
  config.num_layers = size(json, "n_layers");
  config.num_heads = size(json, "n_heads");
  config.num_kv_heads = json.integer("n_kv_heads").value_or(config.num_heads);
  const auto head_dim = json.integer("head_dim");
  CARAVAN_CHECK(head_dim.has_value() || config.hidden_size % config.num_heads == 0, InputError,
                "{}: dim ({}) must be a multiple of n_heads ({})", where, config.hidden_size,
                config.num_heads);
  config.head_dim = head_dim.value_or(config.hidden_size / config.num_heads);
  config.ffn_size = ffn_size(json, config.hidden_size);
  params.is_mistral = json.find("hidden_dim") != nullptr;
  config.norm_epsilon = json.real("norm_eps").value_or(1e-5);
  const std::int64_t vocab_size = json.integer("vocab_size").value_or(-1);
  params.has_vocab_size = vocab_size != -1;
  config.vocab_size = params.has_vocab_size ? vocab_size : 1;  // until it is known
  params.rope_theta = json.real("rope_theta");
  config.rope_theta = params.rope_theta.value_or(kLlama2Theta);
  config.max_positions = 1;  // until it is known
  read_scaling(json, params);
  config.vision = read_meta_vision(json, config.num_layers, encoder_sizes(parsed, where));
  set_vocab_size(config, config.vocab_size);
  if (const auto problems = config.problems(); !problems.empty())
    throw InputError(fmt::format("{}: {}", where, fmt::join(problems, "; ")));
  return params;
}

void set_vocab_size(model::LlamaConfig& config, std::int64_t vocab_size) {
  config.vocab_size = vocab_size;
  if (config.vision) config.vision->image_token_id = vocab_size;
}

void complete_meta_config(MetaParams& params, text::TokenizerKind tokenizer) {
  model::LlamaConfig& config = params.config;
  const bool is_llama2 = tokenizer == text::TokenizerKind::kSentencePiece;
  config.rope_theta = params.rope_theta.value_or(is_llama2 ? kLlama2Theta : kLlama3Theta);
  // Llama 1 shows in its epsilon.
  const std::int64_t llama2_positions = config.norm_epsilon < 5e-6 ? 2048 : 4096;
  if (config.rope_scaling.kind != model::RopeScalingKind::kNone) {
    config.max_positions = 131072;
  } else if (config.rope_theta == kCodeLlamaTheta) {
    // Code Llama of Llama 2's kind; Mistral 0.2 and later have the same base.
    config.max_positions = is_llama2 && !params.is_mistral ? 16384 : 32768;
  } else {
    config.max_positions = is_llama2 ? llama2_positions : 8192;
  }
}

}  // namespace caravan::checkpoint
