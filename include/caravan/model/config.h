#pragma once
// The architecture of a Llama model: global sizes that never change, as stored in a checkpoint.
//
// Leaves out: this rank's share (shard_plan.h), generation defaults (checkpoint/), reading source
// configurations.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "caravan/model/vision_config.h"

namespace caravan::model {

enum class RopeScalingKind { kNone, kLinear, kLlama3 };

/// Rotary position scaling; fields beyond `kind` and `factor` belong to kLlama3.
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  std::int64_t original_max_positions = 8192;
  bool operator==(const RopeScaling&) const = default;
};

struct LlamaConfig {
  std::int64_t vocab_size = 0;     // V, rows of the embedding and the head
  std::int64_t hidden_size = 0;    // D
  std::int64_t ffn_size = 0;       // F
  std::int64_t num_layers = 0;     // L
  std::int64_t num_heads = 0;      // H
  std::int64_t num_kv_heads = 0;   // K, divides H
  std::int64_t head_dim = 0;       // d, even; H*d may differ from D
  std::int64_t max_positions = 0;  // context length
  double norm_epsilon = 1e-5;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  std::vector<float> rope_divisors;  // d/2 frequency divisors given by the source itself (GGUF
                                     // rope_freqs), or empty
  bool tied_embeddings = false;
  bool attention_bias = false;         // q, k, v and o
  bool mlp_bias = false;               // gate, up and down
  std::optional<VisionConfig> vision;  // Llama 3.2 Vision; num_layers does not count its
                                       // cross-attention layers
  bool operator==(const LlamaConfig&) const = default;

  /// Every fault of the description, one text each ("num_heads (9) must be a multiple of
  /// num_kv_heads (2)"); also bounds all sizes so that no product of them overflows. Empty when it
  /// is sound.
  std::vector<std::string> problems() const;
};

/// JSON text with all architecture numbers, and back.
/// @throws ConfigError naming the missing, unknown or ill-typed field.
std::string to_json(const LlamaConfig& config);
LlamaConfig llama_config_from_json(const std::string& text);

/// Inverse frequency of each rotary pair, [head_dim / 2], scaling applied, computed in extended
/// precision and rounded once (the same on every machine).
std::vector<float> rope_inverse_frequencies(const LlamaConfig& config);

}  // namespace caravan::model
