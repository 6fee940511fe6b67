#pragma once
// Meta's params.json of a Llama model, text or vision.
//
// Leaves out: what params.json does not say and only the weights or the tokenizer do
// (complete_meta_config).

#include <cstdint>
#include <optional>
#include <string>

#include "caravan/model/config.h"
#include "caravan/text/tokenizer_spec.h"

namespace caravan::checkpoint {

struct MetaParams {
  model::LlamaConfig config;    // without what depends on the tokenizer
  bool has_vocab_size = false;  // otherwise -1 in the file, as in Llama 2
  std::optional<double> rope_theta;
  /// The released models whose head is their embedding (3.2 1B and 3B), by their sizes.
  bool is_tied_release = false;
  bool is_mistral = false;  // Mistral's dialect, which names the feed-forward width
};

/// The feed-forward width is that of Meta's formula, the image encoder that of Meta's code.
/// @throws InputError with `where` for malformed JSON, mixtures of experts, sliding
/// windows, quantized or LoRA variants, and sizes that make no sense.
MetaParams parse_meta_params(const std::string& text, const std::string& where);

/// How often each key-value head is there in the files that have this configuration: twice in Llama
/// 3.1 405B for 16 GPUs. By the sizes of the release, for where there are no weights that show it.
std::int64_t copies_of_kv_heads(const model::LlamaConfig& config);

/// The id of the image token of vision models follows.
void set_vocab_size(model::LlamaConfig& config, std::int64_t vocab_size);

/// Sets the rotary base where the file has none (10000 for Llama 2, 500000 for Llama 3) and the
/// context length, which the file never has. The generation shows in the tokenizer.
void complete_meta_config(MetaParams& params, text::TokenizerKind tokenizer);

}  // namespace caravan::checkpoint
