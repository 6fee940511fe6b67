// GGUF files of architecture "llama".

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <string_view>
#include <utility>

#include "caravan/checkpoint/gguf.h"
#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "caravan/core/log.h"
#include "source_parts.h"
#include "source_text.h"
#include "text_files.h"

namespace caravan::checkpoint {
namespace {

constexpr std::int64_t kPlainLlama3Positions = 8192;

using Tensors = std::vector<SourceTensor>;

const SourceTensor* find_tensor(const Tensors& tensors, std::string_view name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const SourceTensor& tensor) { return tensor.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

std::int64_t required(const GgufFile& gguf, const std::string& key, const std::string& path) {
  const auto value = gguf.integer(key);
  CARAVAN_CHECK(value.has_value(), InputError, "{}: the key \"{}\" is missing", path, key);
  return *value;
}

void check_architecture(const GgufFile& gguf, const std::string& path) {
  const std::string architecture = gguf.text("general.architecture").value_or("");
  CARAVAN_CHECK(
      architecture != "mllama" && architecture != "clip", InputError,
      "{}: this is {} as GGUF (general.architecture \"{}\"), which is not read; convert "
      "the Hugging Face, Meta or torchtune form of the model",
      path, architecture == "clip" ? "the image encoder of a vision model" : "a Llama vision model",
      architecture);
  const std::string type = gguf.text("general.type").value_or("model");
  CARAVAN_CHECK(
      type == "model", InputError,
      "{}: general.type is \"{}\", expected \"model\": this file belongs to a model (a LoRA "
      "adapter must be merged into it first); convert the model's own GGUF",
      path, type);
  CARAVAN_CHECK(architecture == "llama", InputError,
                "{}: general.architecture is \"{}\", expected \"llama\": this is another "
                "architecture, and Caravan runs Llama models (and Mistral's without a sliding "
                "window) only",
                path, architecture);
  CARAVAN_CHECK(gguf.integer("llama.expert_count").value_or(0) == 0, InputError,
                "{}: the model is a mixture of experts (llama.expert_count {}, as Mixtral is), and "
                "Caravan runs Llama models without experts only",
                path, gguf.integer("llama.expert_count").value_or(0));
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
std::vector<float> read_rope_divisors(const Tensors& tensors, std::vector<io::InputFile>& files,
                                      const model::LlamaConfig& config) {
  const std::string& path = files.front().path();
  const SourceTensor* tensor = find_tensor(tensors, "rope_freqs.weight");
  if (tensor == nullptr) {
    if (config.max_positions > kPlainLlama3Positions && config.rope_theta == 500000.0) {
      log::warning(
          "{} has no rope_freqs.weight although it looks like Llama 3.1 or later: its rotary "
          "scaling is lost (an old conversion?)",
          path);
    }
    return {};
  }
  CARAVAN_CHECK(tensor->shape == std::vector{config.head_dim / 2}, InputError,
                "{}: rope_freqs.weight has shape [{}], expected [{}]", path,
                fmt::join(tensor->shape, ", "), config.head_dim / 2);
  std::vector<float> divisors(checked_cast<std::size_t>(tensor->shape[0]));
  read_rectangle(files, *tensor, {0, 1}, {0, tensor->shape[0]}, divisors.data());
  if (std::all_of(divisors.begin(), divisors.end(), [](float d) { return d == 1.0F; })) return {};
  return divisors;
}

model::LlamaConfig read_config(const GgufFile& gguf, const Tensors& tensors,
                               std::vector<io::InputFile>& files) {
  const std::string& path = files.front().path();
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
  const std::int64_t window = gguf.integer("llama.attention.sliding_window").value_or(0);
  CARAVAN_CHECK(window <= 0 || window >= config.max_positions, InputError,
                "{}: the model attends to a sliding window of {} positions (Mistral 0.1), which is "
                "not supported",
                path, window);
  const auto epsilon = gguf.real("llama.attention.layer_norm_rms_epsilon");
  CARAVAN_CHECK(epsilon.has_value(), InputError,
                "{}: the key \"llama.attention.layer_norm_rms_epsilon\" is missing", path);
  // Stored as float32: 1e-5 would come out as 9.99999975e-06.
  config.norm_epsilon = std::stod(fmt::format("{}", static_cast<float>(*epsilon)));
  config.rope_theta = gguf.real("llama.rope.freq_base").value_or(10000.0);
  config.rope_scaling = read_scaling(gguf, path);
  const SourceTensor* embedding = find_tensor(tensors, "token_embd.weight");
  CARAVAN_CHECK(embedding != nullptr && embedding->shape.size() == 2, InputError,
                "{}: the matrix token_embd.weight is missing", path);
  config.vocab_size = gguf.integer("llama.vocab_size").value_or(embedding->shape[0]);
  config.tied_embeddings = find_tensor(tensors, "output.weight") == nullptr;
  config.attention_bias = find_tensor(tensors, "blk.0.attn_q.bias") != nullptr;
  config.mlp_bias = find_tensor(tensors, "blk.0.ffn_gate.bias") != nullptr;
  config.rope_divisors = read_rope_divisors(tensors, files, config);
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

// "NAME-00001-of-00003.gguf" of each part, from the name of any of them.
std::vector<std::string> part_names(const std::string& path, std::int64_t count) {
  std::smatch match;
  CARAVAN_CHECK(
      std::regex_match(path, match, std::regex(R"((.*)-(\d{5})-of-(\d{5})\.gguf)")) &&
          std::stoll(match.str(3)) == count,
      InputError,
      "{} is one part of {} of a split GGUF; its name must end in \"-00001-of-{:05}.gguf\" "
      "for the other parts to be found",
      path, count, count);
  std::vector<std::string> names;
  std::vector<std::string> missing;
  for (std::int64_t i = 1; i <= count; ++i) {
    names.push_back(fmt::format("{}-{:05}-of-{}.gguf", match.str(1), i, match.str(3)));
    if (!std::filesystem::exists(names.back())) missing.push_back(names.back());
  }
  CARAVAN_CHECK(missing.empty(), InputError, "{} of {} parts of a split GGUF are missing: {}",
                missing.size(), count, fmt::join(missing, ", "));
  return names;
}

void check_part(const GgufFile& part, std::int64_t number, std::int64_t count,
                const std::string& path) {
  CARAVAN_CHECK(part.integer("split.no").value_or(-1) == number &&
                    part.integer("split.count").value_or(0) == count,
                InputError, "{} says that it is part {} of {} (from 0), expected {} of {}", path,
                part.integer("split.no").value_or(-1), part.integer("split.count").value_or(0),
                number, count);
}

// Opens the file, or all parts of a split one; gives the metadata (those of the first part) and
// appends the tensors of all.
GgufFile read_parts(Source& source, const std::string& path, Tensors& tensors) {
  source.files.emplace_back(path);
  GgufFile first = GgufFile::read(source.files.front());
  const std::int64_t count = first.integer("split.count").value_or(1);
  if (count <= 1) {
    tensors = first.tensors();
    return first;
  }
  source.files.clear();
  std::set<std::string> names;
  for (const std::string& name : part_names(path, count)) {
    const std::int64_t number = std::ssize(source.files);
    io::InputFile& file = source.files.emplace_back(name);
    refuse_stand_in(file);
    GgufFile part = GgufFile::read(file);
    check_part(part, number, count, name);
    for (SourceTensor tensor : part.tensors()) {
      CARAVAN_CHECK(names.insert(tensor.name).second, InputError,
                    "{}: the tensor \"{}\" is in an earlier part, too", name, tensor.name);
      tensor.file = number;
      tensors.push_back(std::move(tensor));
    }
    if (number == 0) first = std::move(part);
  }
  const std::int64_t expected = first.integer("split.tensors.count").value_or(std::ssize(tensors));
  CARAVAN_CHECK(expected == std::ssize(tensors), InputError,
                "{}: the parts hold {} tensors, expected {} (split.tensors.count)", path,
                tensors.size(), expected);
  return first;
}

// GGUF files of Mistral 7B 0.1 and what was trained from it (Zephyr and others) do not name its
// sliding window of 4096 positions. No other Llama has 32768 positions on a base of 10000.
void warn_of_unnamed_window(const model::LlamaConfig& config, const std::string& path) {
  if (config.rope_theta != 10000 || config.max_positions != 32768 ||
      config.rope_scaling.kind != model::RopeScalingKind::kNone)
    return;
  log::warning(
      "{}: the model has the positions of Mistral 0.1, which attends to a sliding window of 4096 "
      "positions; Caravan attends to all, so answers differ behind the first 4096",
      path);
}

}  // namespace

Source open_gguf(const std::string& path, const SourceOptions& options) {
  Source source;
  Tensors tensors;
  const GgufFile gguf = read_parts(source, path, tensors);
  check_architecture(gguf, path);
  ModelDescription& description = source.description;
  description.config = read_config(gguf, tensors, source.files);
  warn_of_unnamed_window(description.config, path);
  match_tensors(source, std::move(tensors), NameStyle::kGguf, path);

  const std::filesystem::path name(path);
  const std::string given = gguf.text("general.name").value_or("");
  description.name =
      presentable_name(options.name.value_or(given.empty() ? name.stem().string() : given));
  description.source = fmt::format("GGUF file {}, {}", presentable_name(name.filename().string()),
                                   matrix_types(source));
  const text::GgufTokenizer tokenizer = read_tokenizer(gguf, path);
  description.chat_template = gguf.text("tokenizer.chat_template").value_or("");
  if (options.tokenizer) {
    take_named_tokenizer(description, *options.tokenizer);
  } else {
    try {
      description.tokenizer = text::tokenizer_from_gguf(tokenizer);
    } catch (const InputError& error) {
      throw InputError(
          fmt::format("{}: {} (--tokenizer FILE takes that of another form of the "
                      "model)",
                      path, error.what()));
    }
  }
  fit_tokenizer(description.tokenizer, description.config.vocab_size, path);
  std::vector<std::vector<std::int32_t>> stop_ids = stop_id_lists(gguf, tokenizer, path);
  stop_ids.push_back(end_of_text_ids(description.tokenizer.added_tokens));
  if (description.tokenizer.eos_id) stop_ids.push_back({*description.tokenizer.eos_id});
  description.generation.stop_ids = merge_stop_ids(stop_ids, description.config.vocab_size, path);
  settle_text(description, options, path);
  return source;
}

}  // namespace caravan::checkpoint
