#include "caravan/checkpoint/tensor_names.h"

#include "caravan/core/error.h"

namespace caravan::checkpoint {
namespace {

struct Names {
  std::string_view canonical;
  std::string_view hugging_face;
  std::string_view gguf;
  std::string_view meta;
  std::string_view torchtune;
};

constexpr Names kModelNames[] = {
    {"text.embed", "model.embed_tokens.weight", "token_embd.weight", "tok_embeddings.weight",
     "tok_embeddings.weight"},
    {"text.final_norm", "model.norm.weight", "output_norm.weight", "norm.weight", "norm.scale"},
    {"text.head", "lm_head.weight", "output.weight", "output.weight", "output.weight"},
};

// Behind "text.layer.N." and the style's prefix; without ".weight" (".scale") and ".bias".
constexpr Names kLayerNames[] = {
    {"attn_norm", "input_layernorm", "attn_norm", "attention_norm", "sa_norm"},
    {"wq", "self_attn.q_proj", "attn_q", "attention.wq", "attn.q_proj"},
    {"wk", "self_attn.k_proj", "attn_k", "attention.wk", "attn.k_proj"},
    {"wv", "self_attn.v_proj", "attn_v", "attention.wv", "attn.v_proj"},
    {"wo", "self_attn.o_proj", "attn_output", "attention.wo", "attn.output_proj"},
    {"ffn_norm", "post_attention_layernorm", "ffn_norm", "ffn_norm", "mlp_norm"},
    {"w1", "mlp.gate_proj", "ffn_gate", "feed_forward.w1", "mlp.w1"},
    {"w3", "mlp.up_proj", "ffn_up", "feed_forward.w3", "mlp.w3"},
    {"w2", "mlp.down_proj", "ffn_down", "feed_forward.w2", "mlp.w2"},
};

constexpr std::string_view kLayerPrefix = "text.layer.";
constexpr std::string_view kBiasSuffix = ".bias";

std::string_view in_style(const Names& names, NameStyle style) {
  switch (style) {
    case NameStyle::kHuggingFace: return names.hugging_face;
    case NameStyle::kGguf: return names.gguf;
    case NameStyle::kMeta: return names.meta;
    case NameStyle::kTorchtune: return names.torchtune;
  }
  return names.canonical;
}

std::string_view layer_prefix(NameStyle style) {
  switch (style) {
    case NameStyle::kHuggingFace: return "model.layers";
    case NameStyle::kGguf: return "blk";
    case NameStyle::kMeta:
    case NameStyle::kTorchtune: return "layers";
  }
  return "";
}

}  // namespace

std::string_view name_style_name(NameStyle style) {
  switch (style) {
    case NameStyle::kHuggingFace: return "Hugging Face";
    case NameStyle::kGguf: return "GGUF";
    case NameStyle::kMeta: return "Meta";
    case NameStyle::kTorchtune: return "torchtune";
  }
  return "?";
}

std::string source_tensor_name(std::string_view canonical, NameStyle style) {
  for (const Names& names : kModelNames) {
    if (names.canonical == canonical) return std::string(in_style(names, style));
  }
  CARAVAN_ASSERT(canonical.starts_with(kLayerPrefix), "tensor \"{}\"", canonical);
  std::string_view rest = canonical.substr(kLayerPrefix.size());
  const std::string_view layer = rest.substr(0, rest.find('.'));
  CARAVAN_ASSERT(layer.size() < rest.size(), "tensor \"{}\"", canonical);
  rest.remove_prefix(layer.size() + 1);
  const bool bias = rest.ends_with(kBiasSuffix);
  if (bias) rest.remove_suffix(kBiasSuffix.size());
  for (const Names& names : kLayerNames) {
    if (names.canonical != rest) continue;
    const bool scale = style == NameStyle::kTorchtune && rest.ends_with("norm");
    return fmt::format("{}.{}.{}.{}", layer_prefix(style), layer, in_style(names, style),
                       bias    ? "bias"
                       : scale ? "scale"
                               : "weight");
  }
  throw_internal_error(__FILE__, __LINE__, "canonical", std::string(canonical));
}

bool is_ignored_tensor(std::string_view source_name, NameStyle style) {
  switch (style) {
    case NameStyle::kHuggingFace: return source_name.ends_with(".rotary_emb.inv_freq");
    case NameStyle::kGguf:
      return source_name.ends_with(".attn_rot_embd.weight") ||
             source_name.ends_with(".attn_rot_embd") || source_name == "rope_freqs.weight";
    case NameStyle::kMeta:
      return source_name == "rope.freqs" || source_name == "text_model.rope.freqs";
    case NameStyle::kTorchtune: return false;
  }
  return false;
}

}  // namespace caravan::checkpoint
