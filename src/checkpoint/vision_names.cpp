#include "caravan/checkpoint/vision_names.h"

#include <algorithm>
#include <charconv>

#include "caravan/core/error.h"

namespace caravan::checkpoint {
namespace {

struct Names {
  std::string_view canonical;
  std::string_view hugging_face;
  std::string_view meta;
  std::string_view torchtune;

  std::string_view in(NameStyle style) const {
    switch (style) {
      case NameStyle::kHuggingFace: return hugging_face;
      case NameStyle::kMeta: return meta;
      case NameStyle::kTorchtune: return torchtune;
      case NameStyle::kGguf: break;
    }
    throw_internal_error(__FILE__, __LINE__, "style", "vision models have no names in GGUF");
  }
};

// Behind the prefix of a cross-attention layer.
constexpr Names kCrossNames[] = {
    {"attn_norm", "input_layernorm.weight", "attention_norm.weight", "ca_norm.scale"},
    {"wq", "cross_attn.q_proj.weight", "attention.wq.weight", "attn.q_proj.weight"},
    {"wk", "cross_attn.k_proj.weight", "attention.wk.weight", "attn.k_proj.weight"},
    {"wv", "cross_attn.v_proj.weight", "attention.wv.weight", "attn.v_proj.weight"},
    {"wo", "cross_attn.o_proj.weight", "attention.wo.weight", "attn.output_proj.weight"},
    {"q_norm", "cross_attn.q_norm.weight", "attention.q_norm.weight", "attn.q_norm.scale"},
    {"k_norm", "cross_attn.k_norm.weight", "attention.k_norm.weight", "attn.k_norm.scale"},
    {"gate_attn", "cross_attn_attn_gate", "gate_attn", "ca_scale.scale"},
    {"ffn_norm", "post_attention_layernorm.weight", "ffn_norm.weight", "mlp_norm.scale"},
    {"w1", "mlp.gate_proj.weight", "feed_forward.w1.weight", "mlp.w1.weight"},
    {"w3", "mlp.up_proj.weight", "feed_forward.w3.weight", "mlp.w3.weight"},
    {"w2", "mlp.down_proj.weight", "feed_forward.w2.weight", "mlp.w2.weight"},
    {"gate_ffn", "cross_attn_mlp_gate", "gate_ffwd", "mlp_scale.scale"},
};

// Behind the prefix of a layer of the encoder.
constexpr Names kEncoderLayerNames[] = {
    {"norm1", "input_layernorm.weight", "ln_1.weight", "sa_norm.weight"},
    {"norm1.bias", "input_layernorm.bias", "ln_1.bias", "sa_norm.bias"},
    {"wq", "self_attn.q_proj.weight", "attn.wq.weight", "attn.q_proj.weight"},
    {"wk", "self_attn.k_proj.weight", "attn.wk.weight", "attn.k_proj.weight"},
    {"wv", "self_attn.v_proj.weight", "attn.wv.weight", "attn.v_proj.weight"},
    {"wo", "self_attn.o_proj.weight", "attn.wo.weight", "attn.output_proj.weight"},
    {"gate_attn", "gate_attn", "gate_attn", "sa_scale.scale"},
    {"norm2", "post_attention_layernorm.weight", "ln_2.weight", "mlp_norm.weight"},
    {"norm2.bias", "post_attention_layernorm.bias", "ln_2.bias", "mlp_norm.bias"},
    {"w1", "mlp.fc1.weight", "mlp.c_fc.weight", "mlp.w1.weight"},
    {"w1.bias", "mlp.fc1.bias", "mlp.c_fc.bias", "mlp.w1.bias"},
    {"w2", "mlp.fc2.weight", "mlp.c_proj.weight", "mlp.w2.weight"},
    {"w2.bias", "mlp.fc2.bias", "mlp.c_proj.bias", "mlp.w2.bias"},
    {"gate_ffn", "gate_ffn", "gate_ffn", "mlp_scale.scale"},
};

// Behind "vision.", and behind the prefix of the encoder.
constexpr Names kEncoderNames[] = {
    {"patch", "patch_embedding.weight", "conv1._linear.weight", "conv.weight"},
    {"class", "class_embedding", "class_embedding", "cls_token_embedding.weight"},
    {"position", "gated_positional_embedding.embedding", "positional_embedding",
     "token_pos_embedding.local_token_positional_embedding"},
    {"position_tile", "gated_positional_embedding.tile_embedding.weight",
     "gated_positional_embedding", "token_pos_embedding.global_token_positional_embedding"},
    {"position_gate", "gated_positional_embedding.gate", "gated_positional_embedding_gate",
     "token_pos_embedding.gate"},
    {"pre_tile", "pre_tile_positional_embedding.embedding.weight", "pre_tile_pos_embed.embedding",
     "pre_tile_pos_embed.embedding"},
    {"pre_tile_gate", "pre_tile_positional_embedding.gate", "pre_tile_pos_embed.gate",
     "pre_tile_pos_embed.gate"},
    {"post_tile", "post_tile_positional_embedding.embedding.weight",
     "post_tile_pos_embed.embedding", "post_tile_pos_embed.embedding"},
    {"post_tile_gate", "post_tile_positional_embedding.gate", "post_tile_pos_embed.gate",
     "post_tile_pos_embed.gate"},
    {"norm_pre", "layernorm_pre.weight", "ln_pre.weight", "ln_pre.weight"},
    {"norm_pre.bias", "layernorm_pre.bias", "ln_pre.bias", "ln_pre.bias"},
    {"norm_post", "layernorm_post.weight", "ln_post.weight", "ln_post.weight"},
    {"norm_post.bias", "layernorm_post.bias", "ln_post.bias", "ln_post.bias"},
};

// Before the numbers of layers, and before names of the encoder.
constexpr Names kPrefixes[] = {
    {"text", "", "text_model.", "decoder."},
    {"encoder", "", "vision_model.vision_encoder.", "encoder.clip."},
    {"local", "transformer.layers.", "transformer.resblocks.", "layers."},
    {"global", "global_transformer.layers.", "global_transformer.resblocks.", "layers."},
    {"projector", "multi_modal_projector.", "vision_model.vision_projection.",
     "encoder.projection.output."},
};
constexpr std::string_view kTuneGlobalPrefix = "encoder.projection.";

template <std::size_t count>
std::string_view find(const Names (&table)[count], std::string_view canonical, NameStyle style) {
  for (const Names& names : table) {
    if (names.canonical == canonical) return names.in(style);
  }
  throw_internal_error(__FILE__, __LINE__, "canonical", std::string(canonical));
}

/// Takes `prefix` off the begin of `name`; false if it is not there.
bool take(std::string_view& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  return true;
}

/// "3.wq": the number, leaving "wq".
std::int64_t take_layer(std::string_view& name) {
  std::int64_t layer = 0;
  const auto [end, fault] = std::from_chars(name.data(), name.data() + name.size(), layer);
  CARAVAN_ASSERT(fault == std::errc{} && end < name.data() + name.size() && *end == '.',
                 "layer of \"{}\"", name);
  name.remove_prefix(static_cast<std::size_t>(end - name.data()) + 1);
  return layer;
}

bool any_starts_with(const std::vector<std::string>& names, std::string_view prefix) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return name.starts_with(prefix); });
}

}  // namespace

VisionPrefixes VisionPrefixes::of(const std::vector<std::string>& names) {
  VisionPrefixes prefixes;
  if (any_starts_with(names, "model.language_model.")) prefixes.text = "model.language_model.";
  if (any_starts_with(names, "lm_head.")) prefixes.head = "";
  if (any_starts_with(names, "model.vision_model.")) prefixes.encoder = "model.vision_model.";
  if (any_starts_with(names, "model.multi_modal_projector.")) prefixes.projector = "model.";
  return prefixes;
}

VisionNames::VisionNames(NameStyle style, const model::VisionConfig& vision,
                         VisionPrefixes prefixes)
    : style_(style), cross_layers_(vision.cross_layers), prefixes_(std::move(prefixes)) {
  CARAVAN_ASSERT(style != NameStyle::kGguf, "vision models have no names in GGUF");
}

std::string VisionNames::of(std::string_view canonical) const {
  std::string_view rest = canonical;
  const std::string_view text = find(kPrefixes, "text", style_);
  const bool hugging_face = style_ == NameStyle::kHuggingFace;
  if (canonical == "text.embed_extra") {
    if (hugging_face) return of("text.embed") + std::string(kExtraRows);
    return fmt::format(
        "{}{}.weight", text,
        style_ == NameStyle::kMeta ? "learnable_embedding" : "tok_embeddings.fusion_embedding");
  }
  if (take(rest, "text.cross.")) return cross_layer_name(rest);
  if (take(rest, "text.layer.")) return text_layer_name(rest);
  if (take(rest, "text.")) {
    std::string name = source_tensor_name(canonical, style_);
    if (!hugging_face) return fmt::format("{}{}", text, name);
    return canonical == "text.head" ? prefixes_.head + name
                                    : prefixes_.text + name.substr(sizeof("model.") - 1);
  }
  const bool of_vision = take(rest, "vision.");
  CARAVAN_ASSERT(of_vision, "tensor \"{}\"", canonical);
  if (take(rest, "local.")) return encoder_layer_name(rest, Stack::kLocal);
  if (take(rest, "global.")) return encoder_layer_name(rest, Stack::kGlobal);
  if (take(rest, "projector")) {
    return fmt::format("{}{}{}", hugging_face ? prefixes_.projector : "",
                       find(kPrefixes, "projector", style_), rest.empty() ? "weight" : "bias");
  }
  return fmt::format("{}{}{}", hugging_face ? prefixes_.encoder : "",
                     find(kPrefixes, "encoder", style_), find(kEncoderNames, rest, style_));
}

// Hugging Face counts the cross-attention layers among the layers.
std::string VisionNames::text_layer_name(std::string_view rest) const {
  const std::int64_t layer = take_layer(rest);
  if (style_ != NameStyle::kHuggingFace) {
    return fmt::format("{}{}", find(kPrefixes, "text", style_),
                       source_tensor_name(fmt::format("text.layer.{}.{}", layer, rest), style_));
  }
  const auto before = std::upper_bound(cross_layers_.begin(), cross_layers_.end(), layer);
  const std::string name = source_tensor_name(
      fmt::format("text.layer.{}.{}", layer + (before - cross_layers_.begin()), rest), style_);
  return prefixes_.text + name.substr(sizeof("model.") - 1);
}

std::string VisionNames::cross_layer_name(std::string_view rest) const {
  const std::int64_t index = take_layer(rest);
  CARAVAN_ASSERT(index < std::ssize(cross_layers_), "cross-attention layer {}", index);
  const std::int64_t layer = cross_layers_[static_cast<std::size_t>(index)];
  const std::string_view name = find(kCrossNames, rest, style_);
  if (style_ == NameStyle::kHuggingFace)
    return fmt::format("{}layers.{}.{}", prefixes_.text, layer + index, name);
  if (style_ == NameStyle::kMeta)
    return fmt::format("text_model.cross_attention_layers.{}.{}", index, name);
  return fmt::format("decoder.layers.{}.fusion_layer.{}", layer, name);
}

std::string VisionNames::encoder_layer_name(std::string_view rest, Stack stack) const {
  const bool global = stack == Stack::kGlobal;
  const std::int64_t layer = take_layer(rest);
  std::string prefix = prefixes_.encoder;
  if (style_ != NameStyle::kHuggingFace) prefix = find(kPrefixes, "encoder", style_);
  if (style_ == NameStyle::kTorchtune && global) prefix = kTuneGlobalPrefix;
  return fmt::format("{}{}{}.{}", prefix, find(kPrefixes, global ? "global" : "local", style_),
                     layer, find(kEncoderLayerNames, rest, style_));
}

bool has_encoder(const std::vector<std::string>& names) {
  return any_starts_with(names, "vision_model.") || any_starts_with(names, "model.vision_model.") ||
         any_starts_with(names, "encoder.clip.");
}

}  // namespace caravan::checkpoint
