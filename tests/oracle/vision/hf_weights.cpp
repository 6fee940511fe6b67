#include "hf_weights.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "caravan/checkpoint/safetensors.h"
#include "caravan/core/error.h"
#include "caravan/io/input_file.h"

namespace caravan::test {
namespace {

/// "gate_attn" from "text.cross.0.gate_attn"; the number behind the prefix.
struct LayerName {
  std::int64_t layer = 0;
  std::string part;
};
LayerName split(const std::string& name, const std::string& prefix) {
  std::size_t used = 0;
  const std::string rest = name.substr(prefix.size());
  LayerName result;
  result.layer = std::stoll(rest, &used);
  result.part = rest.substr(used + 1);
  return result;
}

/// Rows of each head from halves (HF) to pairs.
HfTensor interleave(const HfTensor& source, std::int64_t head_dim) {
  HfTensor result = source;
  const std::int64_t columns = source.shape[1];
  for (std::int64_t row = 0; row < source.shape[0]; ++row) {
    const std::int64_t in_head = row % head_dim;
    const std::int64_t from = row - in_head + in_head % 2 * (head_dim / 2) + in_head / 2;
    std::copy_n(source.values.data() + from * columns, columns,
                result.values.data() + row * columns);
  }
  return result;
}

HfTensor transposed(const HfTensor& source) {
  HfTensor result = source;
  const std::int64_t rows = source.shape[0];
  const std::int64_t columns = source.shape[1];
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    result.values[static_cast<std::size_t>(i % columns * rows + i / columns)] =
        source.values[static_cast<std::size_t>(i)];
  }
  return result;
}

HfTensor rows_of(const HfTensor& source, std::int64_t begin, std::int64_t end) {
  const std::int64_t columns = source.shape[1];
  return {{end - begin, columns},
          {source.values.begin() + begin * columns, source.values.begin() + end * columns}};
}

}  // namespace

model::LlamaConfig read_hf_config(const std::string& folder) {
  std::ifstream file(folder + "/config.json");
  const auto json = nlohmann::json::parse(file);
  const auto& text = json.at("text_config");
  const auto& encoder = json.at("vision_config");
  const auto& rope =
      text.contains("rope_parameters") ? text.at("rope_parameters") : text.at("rope_scaling");
  model::LlamaConfig config;
  config.vocab_size = text.at("vocab_size");
  config.hidden_size = text.at("hidden_size");
  config.ffn_size = text.at("intermediate_size");
  config.num_heads = text.at("num_attention_heads");
  config.num_kv_heads = text.at("num_key_value_heads");
  config.head_dim = config.hidden_size / config.num_heads;
  config.max_positions = text.at("max_position_embeddings");
  config.norm_epsilon = text.at("rms_norm_eps");
  config.rope_theta = rope.contains("rope_theta") ? rope.at("rope_theta") : text.at("rope_theta");
  config.rope_scaling = {model::RopeScalingKind::kLlama3, rope.at("factor"),
                         rope.at("low_freq_factor"), rope.at("high_freq_factor"),
                         rope.at("original_max_position_embeddings")};
  model::VisionConfig vision;
  vision.tile_size = encoder.at("image_size");
  vision.patch_size = encoder.at("patch_size");
  vision.width = encoder.at("hidden_size");
  vision.num_heads = encoder.at("attention_heads");
  vision.ffn_size = encoder.at("intermediate_size");
  vision.num_local_layers = encoder.at("num_hidden_layers");
  vision.num_global_layers = encoder.at("num_global_layers");
  vision.saved_layers = encoder.at("intermediate_layers_indices").get<std::vector<std::int64_t>>();
  vision.norm_epsilon = encoder.at("norm_eps");
  const auto combined = text.at("cross_attention_layers").get<std::vector<std::int64_t>>();
  for (std::size_t c = 0; c < combined.size(); ++c) {
    vision.cross_layers.push_back(combined[c] - static_cast<std::int64_t>(c));
  }
  vision.image_token_id = config.vocab_size;
  config.num_layers = text.at("num_hidden_layers").get<std::int64_t>() - vision.num_cross_layers();
  config.vision = vision;
  return config;
}

std::map<std::string, HfTensor> read_float_tensors(const std::string& path) {
  io::InputFile file(path);
  std::map<std::string, HfTensor> tensors;
  for (const auto& entry : checkpoint::read_safetensors_header(file)) {
    if (!entry.type) continue;
    std::vector<std::byte> bytes(static_cast<std::size_t>(entry.bytes));
    file.read(entry.offset, bytes);
    HfTensor tensor;
    tensor.shape = entry.shape;
    tensor.values.resize(bytes.size() /
                         static_cast<std::size_t>(checkpoint::block_layout(*entry.type).bytes));
    checkpoint::decode_blocks(*entry.type, bytes, tensor.values);
    tensors[entry.name] = std::move(tensor);
  }
  return tensors;
}

std::vector<std::uint8_t> read_byte_tensor(const std::string& path, const std::string& name) {
  io::InputFile file(path);
  for (const auto& entry : checkpoint::read_safetensors_header(file)) {
    if (entry.name != name) continue;
    std::vector<std::uint8_t> values(static_cast<std::size_t>(entry.bytes));
    file.read(entry.offset, std::as_writable_bytes(std::span(values)));
    return values;
  }
  throw InternalError(path + " has no tensor " + name);
}

HfWeights::HfWeights(const std::string& folder, const model::LlamaConfig& config)
    : config_(config) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    tensors_.merge(read_float_tensors(entry.path().string()));
  }
}

/// A tensor of a part of the model: hub names, or those of newer library versions.
const HfTensor& HfWeights::find(const std::string& part, const std::string& name) const {
  static const std::map<std::string, std::vector<std::string>> kPrefixes = {
      {"text", {"language_model.model.", "model.language_model."}},
      {"head", {"language_model.", ""}},
      {"vision", {"vision_model.", "model.vision_model."}},
      {"projector", {"multi_modal_projector.", "model.multi_modal_projector."}}};
  for (const std::string& prefix : kPrefixes.at(part)) {
    const auto found = tensors_.find(prefix + name);
    if (found != tensors_.end()) return found->second;
  }
  throw InternalError("no tensor " + name + " of the " + part);
}

HfTensor HfWeights::text_layer(const std::string& part, std::int64_t combined_index,
                               bool cross) const {
  static const std::map<std::string, std::string> kNames = {
      {"attn_norm", "input_layernorm.weight"}, {"ffn_norm", "post_attention_layernorm.weight"},
      {"gate_attn", "cross_attn_attn_gate"},   {"gate_ffn", "cross_attn_mlp_gate"},
      {"w1", "mlp.gate_proj.weight"},          {"w3", "mlp.up_proj.weight"},
      {"w2", "mlp.down_proj.weight"}};
  const std::string layer = "layers." + std::to_string(combined_index) + ".";
  const auto known = kNames.find(part);
  if (known != kNames.end()) return find("text", layer + known->second);
  const std::string attention = layer + (cross ? "cross_attn." : "self_attn.");
  if (part == "q_norm" || part == "k_norm") return find("text", attention + part + ".weight");
  const HfTensor& matrix = find("text", attention + part.substr(1) + "_proj.weight");
  return !cross && (part == "wq" || part == "wk") ? interleave(matrix, config_.head_dim) : matrix;
}

/// Our rows (cell, token) from a table [9, 4 * tokens * W] by id of the arrangement.
HfTensor HfWeights::tile_table(const std::string& name, std::int64_t tokens) const {
  const HfTensor& source = find("vision", name);
  // For each cell the id of an arrangement that has it, and its tile there.
  constexpr std::int64_t kPlaces[8][2] = {{4, 0}, {4, 1}, {4, 2}, {4, 3},
                                          {6, 2}, {6, 3}, {7, 2}, {8, 3}};
  const std::int64_t piece = tokens * config_.vision->width;
  HfTensor result{{8 * tokens, config_.vision->width}, {}};
  for (const auto& place : kPlaces) {
    const auto begin = source.values.begin() + (place[0] * 4 + place[1]) * piece;
    result.values.insert(result.values.end(), begin, begin + piece);
  }
  return result;
}

HfTensor HfWeights::vision_tensor(const std::string& name) const {
  const std::int64_t tokens = config_.vision->tile_tokens();
  if (name == "position_tile") {
    return tile_table("gated_positional_embedding.tile_embedding.weight", tokens);
  }
  for (const std::string which : {"pre", "post"}) {
    const std::string table = which + "_tile_positional_embedding.";
    if (name == which + "_tile") return tile_table(table + "embedding.weight", 1);
    if (name == which + "_tile_gate") return find("vision", table + "gate");
    if (name == "norm_" + which) return find("vision", "layernorm_" + which + ".weight");
    if (name == "norm_" + which + ".bias") return find("vision", "layernorm_" + which + ".bias");
  }
  static const std::map<std::string, std::string> kWhole = {
      {"patch", "patch_embedding.weight"},
      {"class", "class_embedding"},
      {"position", "gated_positional_embedding.embedding"},
      {"position_gate", "gated_positional_embedding.gate"}};
  if (kWhole.count(name) != 0) return find("vision", kWhole.at(name));
  const bool local = name.starts_with("local.");
  const LayerName layer = split(name, local ? "local." : "global.");
  static const std::map<std::string, std::string> kParts = {
      {"norm1", "input_layernorm.weight"},
      {"norm1.bias", "input_layernorm.bias"},
      {"norm2", "post_attention_layernorm.weight"},
      {"norm2.bias", "post_attention_layernorm.bias"},
      {"wq", "self_attn.q_proj.weight"},
      {"wk", "self_attn.k_proj.weight"},
      {"wv", "self_attn.v_proj.weight"},
      {"wo", "self_attn.o_proj.weight"},
      {"w1", "mlp.fc1.weight"},
      {"w1.bias", "mlp.fc1.bias"},
      {"w2", "mlp.fc2.weight"},
      {"w2.bias", "mlp.fc2.bias"},
      {"gate_attn", "gate_attn"},
      {"gate_ffn", "gate_ffn"}};
  return find("vision", std::string(local ? "transformer" : "global_transformer") + ".layers." +
                            std::to_string(layer.layer) + "." + kParts.at(layer.part));
}

HfTensor HfWeights::mapped(const model::TensorSpec& spec) const {
  const std::string& name = spec.name;
  const std::int64_t vocab = config_.vocab_size;
  if (name == "text.embed") return rows_of(find("text", "embed_tokens.weight"), 0, vocab);
  if (name == "text.embed_extra") {
    return rows_of(find("text", "embed_tokens.weight"), vocab, vocab + 8);
  }
  if (name == "text.final_norm") return find("text", "norm.weight");
  if (name == "text.head") return find("head", "lm_head.weight");
  if (name == "vision.projector") return find("projector", "weight");
  if (name == "vision.projector.bias") return find("projector", "bias");
  if (name.starts_with("vision.")) return vision_tensor(name.substr(7));
  const auto& cross_layers = config_.vision->cross_layers;
  if (name.starts_with("text.cross.")) {
    const LayerName layer = split(name, "text.cross.");
    const std::int64_t before = cross_layers[static_cast<std::size_t>(layer.layer)];
    return text_layer(layer.part, before + layer.layer, true);
  }
  const LayerName layer = split(name, "text.layer.");
  const auto earlier = std::count_if(cross_layers.begin(), cross_layers.end(),
                                     [&](std::int64_t at) { return at <= layer.layer; });
  return text_layer(layer.part, layer.layer + earlier, false);
}

void HfWeights::read_rows(const model::TensorSpec& spec, Range rows, void* destination) {
  const HfTensor source = mapped(spec);
  const HfTensor stored = spec.transposed ? transposed(source) : source;
  CARAVAN_ASSERT(std::ssize(stored.values) == spec.num_elements(), "{} has {} elements, not {}",
                 spec.name, stored.values.size(), spec.num_elements());
  std::memcpy(destination, stored.values.data() + rows.begin * spec.columns,
              static_cast<std::size_t>(rows.size() * spec.columns) * sizeof(float));
}

}  // namespace caravan::test
