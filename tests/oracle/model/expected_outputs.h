#pragma once
// The stored expectations of tests/data/expected as data.

#include <cstdint>
#include <string>
#include <vector>

namespace caravan::test {

struct ExpectedPrompt {
  std::string name;
  std::vector<std::int32_t> ids;
  std::vector<float> logprobs;             // of the prompt's tokens; NaN for the first
  std::vector<std::int32_t> argmax;        // at every prompt position
  std::vector<float> last_logits;          // [V], or of `last_top_ids`
  std::vector<std::int32_t> last_top_ids;  // empty: all ids
  std::vector<std::int32_t> greedy_ids;
  std::vector<float> greedy_gaps;
  std::vector<float> greedy_logprobs;
  std::int64_t stop_step = -1;

  /// Number of greedy tokens up to the first step that the reference calls too close to compare.
  std::int64_t comparable_tokens() const;
};

struct ExpectedOutputs {
  std::string label;   // "tiny-llama31-gguf-Q8_0"
  std::string source;  // the checkpoint folder or file it belongs to
  /// Path of the tokenizer of the source, below CARAVAN_MODELS_DIR, where it is not in the source.
  std::string tokenizer;
  std::vector<std::int32_t> stop_ids;
  std::vector<std::vector<std::int64_t>> batches;
  std::vector<ExpectedPrompt> prompts;
  std::int64_t trace_prompt = -1;
  std::vector<std::int64_t> trace_shape;  // [L+2, n, D]
  std::vector<float> trace_hidden;
};

/// Every file of the folder, sorted by name.
std::vector<ExpectedOutputs> load_expected_outputs(const std::string& data_folder);

}  // namespace caravan::test
