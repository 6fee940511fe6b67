#pragma once
// What the engine is asked and what it answers: one prompt, its sampling parameters, and its
// finished choices.

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "caravan/model/vision_config.h"

namespace caravan::engine {

/// Most choices of a request: OpenAI's limit of n. One record must not be able to use up the
/// leader's memory.
inline constexpr std::int64_t kMaxChoices = 128;

struct SamplingParams {
  double temperature = 1.0;  // <= 0: greedy
  std::int64_t top_k = 0;    // 0: off
  double top_p = 1.0;        // 1: off
  double min_p = 0.0;        // 0: off
  double repetition_penalty = 1.0;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  std::map<std::int32_t, double> logit_bias;
  std::uint64_t seed =
      0;  // draws depend on (seed, prompt_index, choice, number of the token) alone
  std::int64_t prompt_index = 0;  // among the prompts of one record, which share a seed

  std::int64_t max_tokens = 16;        // new tokens per choice; 0 is legal (prompt only)
  std::int64_t min_tokens = 0;         // stop ids and stop strings are not honoured before
  std::vector<std::int32_t> stop_ids;  // all ids that end a choice (model's and request's)
  std::vector<std::int32_t> eos_ids;   // the subset that counts as plain end: stop_reason null
  std::vector<std::string> stop_strings;
  bool include_stop_string = false;
  bool show_special = false;     // skip_special_tokens: false
  std::int64_t num_choices = 1;  // n

  bool logprobs = false;          // of chosen tokens
  std::int64_t top_logprobs = 0;  // alternatives per chosen token
  bool prompt_logprobs = false;   // of prompt tokens (echo with logprobs)
  std::int64_t top_prompt_logprobs = 0;
};

/// An image that a prompt shows, prepared for the encoder.
struct PromptImage {
  static constexpr std::int64_t kNeverAgain = std::numeric_limits<std::int64_t>::max();

  std::string content_hash;  // images with the same hash are encoded once
  model::TileGrid grid;
  std::shared_ptr<const std::vector<std::uint8_t>> pixels;  // [tiles][3][T][T], 0 to 255
  /// Place of the next request that will show it, in the caller's order, as far as the caller
  /// knows. Decides how long the image is kept and nothing that is answered.
  std::int64_t next_use = kNeverAgain;
};

struct Request {
  std::int64_t id = 0;               // of the caller, echoed in the answer; decides nothing
  std::vector<std::int32_t> prompt;  // at least one token
  std::vector<PromptImage> images;   // one for each image token of the prompt, in order
  SamplingParams sampling;
};

struct TokenLogprob {
  std::int32_t id = 0;
  float logprob = 0;
  std::vector<std::pair<std::int32_t, float>> top;  // best first, ties by id
};

enum class FinishReason { kStop, kLength };

struct Choice {
  std::vector<std::int32_t> token_ids;  // generated, the ending stop id included
  std::string text;                     // valid UTF-8; without the stop string unless asked for
  FinishReason finish_reason = FinishReason::kLength;
  /// What stopped it: nothing (end of text, length), a stop id, or a stop string.
  std::variant<std::monostate, std::int32_t, std::string> stop_reason;
  std::vector<TokenLogprob> logprobs;  // one per generated token if asked for
};

/// The answer to one request: choices in order, or an error text where the model gave no usable
/// numbers.
struct Answer {
  std::int64_t id = 0;
  std::vector<Choice> choices;
  /// [prompt length]; entry 0 and those of image tokens have no logprob (0, no alternatives).
  std::vector<TokenLogprob> prompt_logprobs;
  std::optional<std::string> error;
};

}  // namespace caravan::engine
