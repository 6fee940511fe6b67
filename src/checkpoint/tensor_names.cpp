#include "caravan/checkpoint/tensor_names.h"

#include "caravan/core/error.h"

namespace caravan::checkpoint {
namespace {

struct Names {
  std::string_view canonical;
  std::string_view hugging_face;
  std::string_view gguf;
};

constexpr Names kModelNames[] = {
    {"text.embed", "model.embed_tokens.weight", "token_embd.weight"},
    {"text.final_norm", "model.norm.weight", "output_norm.weight"},
    {"text.head", "lm_head.weight", "output.weight"},
};

// Behind "text.layer.N.", "model.layers.N." and "blk.N."; without ".weight" and ".bias".
constexpr Names kLayerNames[] = {
    {"attn_norm", "input_layernorm", "attn_norm"},
    {"wq", "self_attn.q_proj", "attn_q"},
    {"wk", "self_attn.k_proj", "attn_k"},
    {"wv", "self_attn.v_proj", "attn_v"},
    {"wo", "self_attn.o_proj", "attn_output"},
    {"ffn_norm", "post_attention_layernorm", "ffn_norm"},
    {"w1", "mlp.gate_proj", "ffn_gate"},
    {"w3", "mlp.up_proj", "ffn_up"},
    {"w2", "mlp.down_proj", "ffn_down"},
};

constexpr std::string_view kLayerPrefix = "text.layer.";
constexpr std::string_view kBiasSuffix = ".bias";

std::string_view in_style(const Names& names, NameStyle style) {
  return style == NameStyle::kHuggingFace ? names.hugging_face : names.gguf;
}

}  // namespace

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
    return fmt::format("{}.{}.{}.{}", style == NameStyle::kHuggingFace ? "model.layers" : "blk",
                       layer, in_style(names, style), bias ? "bias" : "weight");
  }
  throw_internal_error(__FILE__, __LINE__, "canonical", std::string(canonical));
}

bool is_ignored_tensor(std::string_view source_name, NameStyle style) {
  if (style == NameStyle::kHuggingFace) return source_name.ends_with(".rotary_emb.inv_freq");
  return source_name.ends_with(".attn_rot_embd.weight") ||
         source_name.ends_with(".attn_rot_embd") || source_name == "rope_freqs.weight";
}

}  // namespace caravan::checkpoint
