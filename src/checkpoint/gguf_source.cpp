// GGUF files of architecture "llama".

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "caravan/checkpoint/gguf.h"
#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "caravan/core/log.h"
#include "source_parts.h"

namespace caravan::checkpoint {
namespace {

constexpr std::int64_t kPlainLlama3Positions = 8192;

const SourceTensor* find_tensor(const GgufFile& gguf, std::string_view name) {
  const auto found = std::find_if(gguf.tensors().begin(), gguf.tensors().end(),
                                  [&](const SourceTensor& tensor) { return tensor.name == name; });
  return found == gguf.tensors().end() ? nullptr : &*found;
}

std::int64_t required(const GgufFile& gguf, const std::string& key, const std::string& path) {
  const auto value = gguf.integer(key);
  CARAVAN_CHECK(value.has_value(), InputError, "{}: the key \"{}\" is missing", path, key);
  return *value;
}

void check_architecture(const GgufFile& gguf, const std::string& path) {
  const std::string architecture = gguf.text("general.architecture").value_or("");
  CARAVAN_CHECK(architecture == "llama", InputError,
                "{}: general.architecture is \"{}\", expected \"llama\": this is another "
                "architecture",
                path, architecture);
  CARAVAN_CHECK(gguf.integer("split.count").value_or(1) <= 1, InputError,
                "{} is one part of a split GGUF; merge the parts first (llama-gguf-split --merge)",
                path);
  CARAVAN_CHECK(gguf.integer("llama.expert_count").value_or(0) == 0, InputError,
                "{}: the model is a mixture of experts (llama.expert_count {}), which is not "
                "supported",
                path, gguf.integer("llama.expert_count").value_or(0));
  const std::string type = gguf.text("general.type").value_or("model");
  CARAVAN_CHECK(type == "model", InputError,
                "{}: general.type is \"{}\" (an adapter?), expected \"model\"", path, type);
}

model::RopeScaling read_scaling(const GgufFile& gguf, const std::string& path) {
  model::RopeScaling scaling;
  const auto legacy = gguf.real("llama.rope.scale_linear");
  const std::string type =
      gguf.text("llama.rope.scaling.type").value_or(legacy ? "linear" : "none");
  if (type == "none") return scaling;
  CARAVAN_CHECK(type == "linear", InputError,
                "{}: llama.rope.scaling.type is \"{}\", expected none or linear", path, type);
  scaling.factor = gguf.real("llama.rope.scaling.factor").value_or(legacy.value_or(1.0));
  if (scaling.factor != 1.0) scaling.kind = model::RopeScalingKind::kLinear;
  return scaling;
}

// Llama 3 scaling: the factors by which the rotary frequencies are divided.
std::vector<float> read_rope_divisors(const GgufFile& gguf, io::InputFile& file,
                                      const model::LlamaConfig& config) {
  const SourceTensor* tensor = find_tensor(gguf, "rope_freqs.weight");
  if (tensor == nullptr) {
    if (config.max_positions > kPlainLlama3Positions && config.rope_theta == 500000.0) {
      log::warning(
          "{} has no rope_freqs.weight although it looks like Llama 3.1 or later: its rotary "
          "scaling is lost (an old conversion?)",
          file.path());
    }
    return {};
  }
  CARAVAN_CHECK(tensor->shape == std::vector{config.head_dim / 2}, InputError,
                "{}: rope_freqs.weight has shape [{}], expected [{}]", file.path(),
                fmt::join(tensor->shape, ", "), config.head_dim / 2);
  std::vector<float> divisors(checked_cast<std::size_t>(tensor->shape[0]));
  read_rectangle(file, *tensor, {0, 1}, {0, tensor->shape[0]}, divisors.data());
  if (std::all_of(divisors.begin(), divisors.end(), [](float d) { return d == 1.0F; })) return {};
  return divisors;
}

model::LlamaConfig read_config(const GgufFile& gguf, io::InputFile& file) {
  const std::string& path = file.path();
  model::LlamaConfig config;
  config.hidden_size = required(gguf, "llama.embedding_length", path);
  config.ffn_size = required(gguf, "llama.feed_forward_length", path);
  config.num_layers = required(gguf, "llama.block_count", path);
  config.num_heads = required(gguf, "llama.attention.head_count", path);
  config.max_positions = required(gguf, "llama.context_length", path);
  config.num_kv_heads = gguf.integer("llama.attention.head_count_kv").value_or(config.num_heads);
  CARAVAN_CHECK(config.num_heads > 0, InputError, "{}: llama.attention.head_count is {}", path,
                config.num_heads);
  config.head_dim =
      gguf.integer("llama.attention.key_length").value_or(config.hidden_size / config.num_heads);
  const auto check_equals_head_dim = [&](const char* key) {
    const std::int64_t value = gguf.integer(key).value_or(config.head_dim);
    CARAVAN_CHECK(value == config.head_dim, InputError, "{}: {} is {}, expected {} as for keys",
                  path, key, value, config.head_dim);
  };
  check_equals_head_dim("llama.attention.value_length");
  check_equals_head_dim("llama.rope.dimension_count");
  const auto epsilon = gguf.real("llama.attention.layer_norm_rms_epsilon");
  CARAVAN_CHECK(epsilon.has_value(), InputError,
                "{}: the key \"llama.attention.layer_norm_rms_epsilon\" is missing", path);
  // Stored as float32: 1e-5 would come out as 9.99999975e-06.
  config.norm_epsilon = std::stod(fmt::format("{}", static_cast<float>(*epsilon)));
  config.rope_theta = gguf.real("llama.rope.freq_base").value_or(10000.0);
  config.rope_scaling = read_scaling(gguf, path);
  const SourceTensor* embedding = find_tensor(gguf, "token_embd.weight");
  CARAVAN_CHECK(embedding != nullptr && embedding->shape.size() == 2, InputError,
                "{}: the matrix token_embd.weight is missing", path);
  config.vocab_size = gguf.integer("llama.vocab_size").value_or(embedding->shape[0]);
  config.tied_embeddings = find_tensor(gguf, "output.weight") == nullptr;
  config.attention_bias = find_tensor(gguf, "blk.0.attn_q.bias") != nullptr;
  config.mlp_bias = find_tensor(gguf, "blk.0.ffn_gate.bias") != nullptr;
  config.rope_divisors = read_rope_divisors(gguf, file, config);
  if (const auto problems = config.problems(); !problems.empty())
    throw InputError(fmt::format("{}: {}", path, fmt::join(problems, "; ")));
  return config;
}

std::optional<std::int32_t> token_id(const GgufFile& gguf, const std::string& key,
                                     const std::string& path) {
  const auto value = gguf.integer(key);
  if (!value) return std::nullopt;
  CARAVAN_CHECK(std::in_range<std::int32_t>(*value) && *value >= 0, InputError,
                "{}: \"{}\" is {}, expected a token id", path, key, *value);
  return static_cast<std::int32_t>(*value);
}

text::GgufTokenizer read_tokenizer(const GgufFile& gguf, const std::string& path) {
  text::GgufTokenizer tokenizer;
  tokenizer.model = gguf.text("tokenizer.ggml.model").value_or("");
  tokenizer.pre = gguf.text("tokenizer.ggml.pre").value_or("");
  tokenizer.tokens = gguf.texts("tokenizer.ggml.tokens");
  tokenizer.merges = gguf.texts("tokenizer.ggml.merges");
  for (const std::int64_t type : gguf.integers("tokenizer.ggml.token_type")) {
    CARAVAN_CHECK(std::in_range<std::int32_t>(type), InputError,
                  "{}: tokenizer.ggml.token_type holds {}", path, type);
    tokenizer.token_types.push_back(static_cast<std::int32_t>(type));
  }
  for (const double score : gguf.reals("tokenizer.ggml.scores"))
    tokenizer.scores.push_back(static_cast<float>(score));
  tokenizer.bos_id = token_id(gguf, "tokenizer.ggml.bos_token_id", path);
  tokenizer.eos_id = token_id(gguf, "tokenizer.ggml.eos_token_id", path);
  tokenizer.unknown_id = token_id(gguf, "tokenizer.ggml.unknown_token_id", path);
  tokenizer.add_bos = gguf.boolean("tokenizer.ggml.add_bos_token");
  tokenizer.add_space_prefix = gguf.boolean("tokenizer.ggml.add_space_prefix");
  return tokenizer;
}

std::vector<std::vector<std::int32_t>> stop_id_lists(const GgufFile& gguf,
                                                     const text::GgufTokenizer& tokenizer,
                                                     const std::string& path) {
  std::vector<std::vector<std::int32_t>> lists(1);
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    if (const auto id = token_id(gguf, key, path)) lists[0].push_back(*id);
  }
  for (std::size_t id = 0; id < tokenizer.tokens.size(); ++id) {
    if (is_end_of_text(tokenizer.tokens[id])) lists[0].push_back(static_cast<std::int32_t>(id));
  }
  return lists;
}

}  // namespace

Source open_gguf(const std::string& path, const SourceOptions& options) {
  Source source;
  source.files.emplace_back(path);
  io::InputFile& file = source.files.front();
  const GgufFile gguf = GgufFile::read(file);
  check_architecture(gguf, path);
  ModelDescription& description = source.description;
  description.config = read_config(gguf, file);
  match_tensors(source, gguf.tensors(), NameStyle::kGguf, path);

  const std::filesystem::path name(path);
  const std::string given = gguf.text("general.name").value_or("");
  description.name =
      presentable_name(options.name.value_or(given.empty() ? name.stem().string() : given));
  description.source = "GGUF file " + presentable_name(name.filename().string());
  const text::GgufTokenizer tokenizer = read_tokenizer(gguf, path);
  try {
    description.tokenizer = text::tokenizer_from_gguf(tokenizer);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", path, error.what()));
  }
  description.chat_template = gguf.text("tokenizer.chat_template").value_or("");
  description.generation.stop_ids =
      merge_stop_ids(stop_id_lists(gguf, tokenizer, path), description.config.vocab_size, path);
  choose_chat_format(description, options, path);
  check_tokenizer(description, path);
  return source;
}

}  // namespace caravan::checkpoint
