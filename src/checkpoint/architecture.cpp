#include "caravan/checkpoint/architecture.h"

#include <filesystem>

#include "caravan/checkpoint/hf_config.h"
#include "caravan/checkpoint/meta_config.h"
#include "caravan/core/error.h"
#include "caravan/core/json_reader.h"
#include "caravan/core/log.h"
#include "caravan/model/shard_plan.h"
#include "source_parts.h"
#include "text_files.h"

namespace caravan::checkpoint {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t kLlama2VocabSize = 32000;
constexpr std::int64_t kLlama3VocabSize = 100000;  // and above
constexpr const char* kUsualNames[] = {"config.json", "params.json"};

fs::path file_of(const std::string& path) {
  for (const char* name : kUsualNames) {
    if (fs::exists(fs::path(path) / name)) return fs::path(path) / name;
  }
  return path;
}

std::string name_of(const fs::path& file) {
  for (const char* name : kUsualNames) {
    if (file.filename() == name) {
      return presentable_name(fs::absolute(file).lexically_normal().parent_path().filename());
    }
  }
  return presentable_name(file.stem().string());
}

// torch's name, under the newer and the older key; vision models may have it with the decoder
// alone.
DType stored_dtype(const JsonReader& json) {
  const std::string name = json.text("dtype").value_or(json.text("torch_dtype").value_or(""));
  const auto decoder = json.object("text_config");
  if (name.empty() && decoder) return stored_dtype(*decoder);
  if (name == "float32") return DType::kFloat32;
  if (name == "float16") return DType::kFloat16;
  return DType::kBFloat16;
}

model::LlamaConfig meta_config(const std::string& text, const std::string& where) {
  MetaParams params = parse_meta_params(text, where);
  model::LlamaConfig& config = params.config;
  if (!params.has_vocab_size) {
    set_vocab_size(config, kLlama2VocabSize);
    log::info("{}: no vocabulary size, taken as {} (Llama 2)", where, kLlama2VocabSize);
  }
  config.tied_embeddings = params.is_tied_release;
  if (const std::int64_t copies = copies_of_kv_heads(config); copies > 1) {
    log::info("{}: the {} key-value heads are {}, each in {} of the files", where,
              config.num_kv_heads, config.num_kv_heads / copies, copies);
    config.num_kv_heads /= copies;
  }
  complete_meta_config(params, config.vocab_size < kLlama3VocabSize
                                   ? text::TokenizerKind::kSentencePiece
                                   : text::TokenizerKind::kTiktoken);
  return config;
}

}  // namespace

bool is_architecture(const std::string& path) {
  std::error_code error;
  return fs::path(path).extension() == ".json" ||
         (fs::is_directory(path, error) && file_of(path) != fs::path(path));
}

Architecture read_architecture(const std::string& path) {
  const fs::path file = file_of(path);
  const std::string where = file.string();
  const std::string text = read_small_file(file, kMaxConfigBytes);
  const Json parsed = parse_json(text, where);
  const JsonReader json(parsed, where);
  Architecture result;
  result.name = name_of(file);
  result.path = where;
  result.dtype = stored_dtype(json);
  if (json.has("dim") || json.object("model").has_value()) {
    result.config = meta_config(text, where);
    return result;
  }
  CARAVAN_CHECK(json.has("hidden_size") || json.has("model_type"), InputError,
                "{} describes no model: expected a config.json of Hugging Face (hidden_size, ...) "
                "or a params.json of Meta (dim, ...)",
                where);
  result.config = parse_hf_config(text, where).config;
  return result;
}

VisionText vision_text(const model::VisionConfig& vision) {
  return {fmt::format("{} layers, before layers {}", vision.num_cross_layers(),
                      fmt::join(vision.cross_layers, ", ")),
          fmt::format("up to {} tiles of {} x {} pixels, {} image tokens each, token id {}",
                      model::kMaxTiles, vision.tile_size, vision.tile_size, vision.tile_tokens(),
                      vision.image_token_id),
          fmt::format("{} local and {} global layers, width {}, {} heads of {}, feed-forward {}",
                      vision.num_local_layers, vision.num_global_layers, vision.width,
                      vision.num_heads, vision.head_dim(), vision.ffn_size)};
}

std::int64_t num_parameters(const model::LlamaConfig& config) {
  std::int64_t total = 0;
  for (const model::TensorSpec& spec : model::tensor_specs(config)) total += spec.num_elements();
  return total;
}

}  // namespace caravan::checkpoint
