#pragma once
// Names of the canonical tensors in each source format (model-wide table, no shapes).

#include <string>
#include <string_view>

namespace caravan::checkpoint {

enum class NameStyle { kHuggingFace, kGguf, kMeta, kTorchtune };

/// "Hugging Face", "GGUF", "Meta", "torchtune".
std::string_view name_style_name(NameStyle style);

/// Name in the source of a canonical tensor: "text.layer.3.wq.bias" is
/// "model.layers.3.self_attn.q_proj.bias" and "blk.3.attn_q.bias".
/// @throws InternalError for a name that no model has.
std::string source_tensor_name(std::string_view canonical, NameStyle style);

/// Whether a source may have this tensor although no model needs it (tables that are recomputed).
bool is_ignored_tensor(std::string_view source_name, NameStyle style);

}  // namespace caravan::checkpoint
