// What `caravan inspect` prints of a checkpoint.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "caravan/checkpoint/architecture.h"
#include "caravan/checkpoint/model_file.h"
#include "caravan/core/clock.h"
#include "caravan/core/json_document.h"
#include "caravan/core/log.h"
#include "file_format.h"

namespace caravan::checkpoint {
namespace {

using Json = OrderedJson;

std::string_view tokenizer_kind_name(text::TokenizerKind kind) {
  switch (kind) {
    case text::TokenizerKind::kTiktoken: return "tiktoken";
    case text::TokenizerKind::kBpe: return "bpe";
    case text::TokenizerKind::kSentencePiece: return "sentencepiece";
  }
  return "?";
}

std::int64_t weight_bytes(const ModelFile& file) {
  std::int64_t total = 0;
  for (const StoredTensor& tensor : file.tensors()) total += tensor.bytes;
  return total;
}

std::string shape_text(const model::TensorSpec& spec) {
  return spec.is_vector ? fmt::format("[{}]", spec.rows)
                        : fmt::format("[{}, {}]", spec.rows, spec.columns);
}

std::string parameter_text(std::int64_t count) {
  const auto number = static_cast<double>(count);
  if (number >= 1e9) return fmt::format("{:.2f} billion", number / 1e9);
  if (number >= 1e6) return fmt::format("{:.1f} million", number / 1e6);
  return fmt::format("{}", count);
}

std::string rope_text(const model::LlamaConfig& config) {
  std::string text = fmt::format("base {}", config.rope_theta);
  switch (config.rope_scaling.kind) {
    case model::RopeScalingKind::kNone: break;
    case model::RopeScalingKind::kLinear:
      text += fmt::format(", linear scaling by {}", config.rope_scaling.factor);
      break;
    case model::RopeScalingKind::kLlama3:
      text += fmt::format(", llama3 scaling by {} beyond {} positions", config.rope_scaling.factor,
                          config.rope_scaling.original_max_positions);
      break;
  }
  if (!config.rope_divisors.empty()) text += ", frequency divisors from the source";
  return text;
}

std::string generation_text(const GenerationDefaults& generation) {
  std::string text = fmt::format("stop ids [{}]", fmt::join(generation.stop_ids, ", "));
  if (generation.temperature) text += fmt::format(", temperature {}", *generation.temperature);
  if (generation.top_p) text += fmt::format(", top_p {}", *generation.top_p);
  if (generation.top_k) text += fmt::format(", top_k {}", *generation.top_k);
  if (generation.repetition_penalty)
    text += fmt::format(", repetition_penalty {}", *generation.repetition_penalty);
  return text;
}

std::string tokenizer_text(const text::TokenizerSpec& spec) {
  const auto special = std::count_if(spec.added_tokens.begin(), spec.added_tokens.end(),
                                     [](const text::AddedToken& token) { return token.special; });
  return fmt::format("{}, {} tokens, {} added ({} special){}", tokenizer_kind_name(spec.kind),
                     spec.tokens.size(), spec.added_tokens.size(), special,
                     spec.add_bos ? fmt::format(", BOS {} first", *spec.bos_id) : ", no BOS");
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json tokenizer_json(const text::TokenizerSpec& spec) {
  Json added = Json::array();
  for (const text::AddedToken& token : spec.added_tokens) {
    Json options = Json::array();
    for (const auto& [name, option] :
         {std::pair{"special", token.special}, std::pair{"normalized", token.normalized},
          std::pair{"single_word", token.single_word}, std::pair{"lstrip", token.lstrip},
          std::pair{"rstrip", token.rstrip}}) {
      if (option) options.push_back(name);
    }
    added.push_back({{"id", token.id}, {"content", token.content}, {"options", options}});
  }
  return {{"kind", tokenizer_kind_name(spec.kind)},
          {"tokens", spec.tokens.size()},
          {"bos_id", or_null(spec.bos_id)},
          {"eos_id", or_null(spec.eos_id)},
          {"unknown_id", or_null(spec.unknown_id)},
          {"add_bos", spec.add_bos},
          {"ignore_merges", spec.ignore_merges},
          {"split_patterns", spec.split_patterns},
          {"space_prefix", space_prefix_name(spec.space_prefix)},
          {"remove_extra_spaces", spec.remove_extra_spaces},
          {"added_tokens", added}};
}

}  // namespace

std::string inspect_text(const ModelFile& file, bool with_tensors) {
  const ModelDescription& about = file.description();
  const model::LlamaConfig& config = about.config;
  std::string out;
  const auto line = [&](std::string_view label, const std::string& value) {
    out += fmt::format("{:<14}{}\n", label, log::escape_line(value));
  };
  line("file", fmt::format("{} ({}, format version {})", file.path(),
                           format_bytes(static_cast<double>(file.file_bytes())),
                           format_version(about.dtype)));
  line("name", about.name);
  line("source", about.source);
  line("created by", about.created_by);
  line("content hash", about.content_hash);
  line("parameters",
       fmt::format("{} in {} tensors, {} as {}", parameter_text(num_parameters(config)),
                   file.tensors().size(), format_bytes(static_cast<double>(weight_bytes(file))),
                   dtype_name(about.dtype)));
  line("model", fmt::format("{} layers, hidden {}, feed-forward {}, vocabulary {}{}",
                            config.num_layers, config.hidden_size, config.ffn_size,
                            config.vocab_size, config.tied_embeddings ? " (tied)" : ""));
  line("attention",
       fmt::format("{} query heads, {} key/value heads of {}{}", config.num_heads,
                   config.num_kv_heads, config.head_dim, config.attention_bias ? ", biases" : ""));
  if (config.vision) {
    const VisionText text = vision_text(*config.vision);
    line("cross-attn", text.cross_attention);
    line("images", text.images);
    line("encoder", text.encoder);
  }
  line("context", fmt::format("{} positions", config.max_positions));
  line("rope", rope_text(config));
  line("norm epsilon", fmt::format("{}", config.norm_epsilon));
  line("tokenizer", tokenizer_text(about.tokenizer));
  line("chat format", std::string(text::chat_format_name(about.chat_format)));
  if (!about.chat_default_system.empty()) line("system text", about.chat_default_system);
  if (!about.chat_template.empty())
    line("chat template",
         fmt::format("{} bytes, for reference (--json shows it)", about.chat_template.size()));
  line("generation", generation_text(about.generation));
  if (!with_tensors) return out;
  out += fmt::format("\n{:<28}{:<18}{:<7}{:<14}{:>6}{:>14}\n", "tensor", "stored shape", "dtype",
                     "split", "bands", "bytes");
  for (const StoredTensor& tensor : file.tensors()) {
    out += fmt::format("{:<28}{:<18}{:<7}{:<14}{:>6}{:>14}\n", tensor.spec.name,
                       shape_text(tensor.spec), dtype_name(tensor.dtype),
                       split_name(tensor.spec.split), tensor.spec.num_bands(), tensor.bytes);
  }
  return out;
}

std::string inspect_json(const ModelFile& file, bool with_tensors) {
  const ModelDescription& about = file.description();
  const GenerationDefaults& generation = about.generation;
  Json json = {{"file", file.path()},
               {"file_bytes", file.file_bytes()},
               {"format_version", format_version(about.dtype)},
               {"name", about.name},
               {"source", about.source},
               {"created_by", about.created_by},
               {"content_hash", about.content_hash},
               {"dtype", dtype_name(about.dtype)},
               {"parameters", num_parameters(about.config)},
               {"weight_bytes", weight_bytes(file)},
               {"model", parse_json<Json>(model::to_json(about.config), "the description")},
               {"tokenizer", tokenizer_json(about.tokenizer)},
               {"chat_format", text::chat_format_name(about.chat_format)},
               {"chat_default_system", about.chat_default_system},
               {"chat_template", about.chat_template},
               {"generation",
                {{"temperature", or_null(generation.temperature)},
                 {"top_p", or_null(generation.top_p)},
                 {"top_k", or_null(generation.top_k)},
                 {"repetition_penalty", or_null(generation.repetition_penalty)},
                 {"stop_ids", generation.stop_ids}}}};
  if (with_tensors) {
    Json& tensors = json["tensors"] = Json::array();
    for (const StoredTensor& tensor : file.tensors()) {
      Json shape = {tensor.spec.rows};
      if (!tensor.spec.is_vector) shape.push_back(tensor.spec.columns);
      tensors.push_back({{"name", tensor.spec.name},
                         {"shape", shape},
                         {"transposed", tensor.spec.transposed},
                         {"dtype", dtype_name(tensor.dtype)},
                         {"split", split_name(tensor.spec.split)},
                         {"band_rows", tensor.spec.band_rows},
                         {"bands", tensor.spec.num_bands()},
                         {"file_offset", tensor.file_offset},
                         {"bytes", tensor.bytes}});
    }
  }
  // A damaged name must not make the output unreadable.
  return json.dump(1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace caravan::checkpoint
