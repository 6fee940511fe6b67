#pragma once
// Names of the tensors of a Llama 3.2 Vision model in the source formats.
//
// Leaves out: shapes, and which of several tensors of ours share one of the source
// (vision_tensors.h).

#include <string>
#include <string_view>
#include <vector>

#include "caravan/checkpoint/tensor_names.h"
#include "caravan/model/vision_config.h"

namespace caravan::checkpoint {

/// Hugging Face's two dialects: what stands before the names of each part.
struct VisionPrefixes {
  std::string text = "language_model.model.";
  std::string head = "language_model.";
  std::string encoder = "vision_model.";
  std::string projector = "";
  /// The prefixes that `names` have.
  static VisionPrefixes of(const std::vector<std::string>& names);
};

class VisionNames {
 public:
  /// @pre style is not kGguf. `prefixes` matter for kHuggingFace.
  VisionNames(NameStyle style, const model::VisionConfig& vision, VisionPrefixes prefixes = {});

  NameStyle style() const { return style_; }
  /// Name in the source of a canonical tensor. Hugging Face has the extra embeddings as further
  /// rows of the embedding: their name is that of the embedding with kExtraRows behind it.
  /// @throws InternalError for a name that no vision model has.
  std::string of(std::string_view canonical) const;

 private:
  enum class Stack { kLocal, kGlobal };  // of the encoder's layers
  std::string text_layer_name(std::string_view rest) const;
  std::string cross_layer_name(std::string_view rest) const;
  std::string encoder_layer_name(std::string_view rest, Stack stack) const;

  NameStyle style_;
  std::vector<std::int64_t> cross_layers_;
  VisionPrefixes prefixes_;
};

inline constexpr std::string_view kExtraRows = " (extra rows)";

/// Whether a source with these names has an image encoder.
bool has_encoder(const std::vector<std::string>& names);

}  // namespace caravan::checkpoint
