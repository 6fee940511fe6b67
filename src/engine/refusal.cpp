#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "caravan/core/partition.h"
#include "caravan/engine/engine.h"
#include "caravan/engine/image_visibility.h"
#include "caravan/ops/kv_pool.h"

namespace caravan::engine {
namespace {

/// The first fault of the sampling parameters, or empty.
std::string parameter_fault(const SamplingParams& params, std::int64_t vocab_size) {
  if (params.num_choices < 1 || params.num_choices > kMaxChoices) {
    return fmt::format("n must be between 1 and {}, found {}", kMaxChoices, params.num_choices);
  }
  if (params.max_tokens < 0) {
    return fmt::format("max_tokens must be at least 0, found {}", params.max_tokens);
  }
  if (params.min_tokens < 0 || params.min_tokens > params.max_tokens) {
    return fmt::format("min_tokens must be between 0 and max_tokens ({}), found {}",
                       params.max_tokens, params.min_tokens);
  }
  if (!std::isfinite(params.temperature)) return "temperature must be a finite number";
  if (params.top_k < 0)
    return fmt::format("top_k must be at least 0 (off), found {}", params.top_k);
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    return fmt::format("top_p must be above 0 and at most 1 (off), found {}", params.top_p);
  }
  if (!(params.min_p >= 0 && params.min_p <= 1)) {
    return fmt::format("min_p must be between 0 (off) and 1, found {}", params.min_p);
  }
  if (!(params.repetition_penalty > 0 && std::isfinite(params.repetition_penalty))) {
    return fmt::format("repetition_penalty must be above 0 (1: off), found {}",
                       params.repetition_penalty);
  }
  if (!std::isfinite(params.presence_penalty) || !std::isfinite(params.frequency_penalty)) {
    return "presence_penalty and frequency_penalty must be finite numbers";
  }
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0 || id >= vocab_size || !std::isfinite(bias)) {
      return fmt::format("logit_bias maps token ids in [0, {}) to finite numbers, found {}: {}",
                         vocab_size, id, bias);
    }
  }
  if (params.top_logprobs < 0 || params.top_prompt_logprobs < 0) {
    return "the number of top log-probabilities must be at least 0";
  }
  for (const std::string& stop : params.stop_strings) {
    if (stop.empty()) return "a stop string must not be empty";
  }
  return {};
}

/// Whether the prompt's ids have embeddings, and whether each of its image tokens has an image.
std::string prompt_fault(const Request& request, const model::LlamaConfig& config) {
  const auto& vision = config.vision;
  const auto is_image = [&](std::int32_t id) { return vision && id == vision->image_token_id; };
  const auto outside = std::find_if(
      request.prompt.begin(), request.prompt.end(),
      [&](std::int32_t id) { return (id < 0 || id >= config.vocab_size) && !is_image(id); });
  if (outside != request.prompt.end()) {
    return fmt::format("token {} of the prompt is {}, but the model's ids are 0 to {}",
                       outside - request.prompt.begin(), *outside, config.vocab_size - 1);
  }
  const std::int64_t num_images = std::ssize(request.images);
  if (!vision && num_images > 0) {
    return fmt::format("the prompt has images ({}), but the model reads text alone", num_images);
  }
  const auto markers = std::count_if(request.prompt.begin(), request.prompt.end(), is_image);
  if (markers != num_images) {
    return fmt::format("the prompt has {} image tokens (id {}) and {} images, one each is needed",
                       markers, vision->image_token_id, num_images);
  }
  return {};
}

/// Images whose tokens are adjacent are seen together, so they must fit the pool together.
std::string image_pool_fault(const Request& request, const model::LlamaConfig& config,
                             const EngineLimits& limits) {
  if (request.images.empty()) return {};
  const model::VisionConfig& vision = *config.vision;
  const std::int64_t block_tokens = ops::KvPool::kBlockTokens;
  const ImageVisibility visibility(request.prompt, vision.image_token_id);
  for (const ImageVisibility::Group& group : visibility.groups()) {
    std::set<std::string_view> counted;
    std::int64_t blocks = 0;
    for (std::int64_t i = group.images.begin; i < group.images.end; ++i) {
      const PromptImage& image = request.images[static_cast<std::size_t>(i)];
      if (!counted.insert(image.content_hash).second) continue;
      blocks += ceil_div(image.grid.num_tiles() * vision.tile_tokens(), block_tokens);
    }
    if (blocks <= limits.image_blocks) continue;
    return fmt::format(
        "the prompt's images {} to {} are seen together and take {} image tokens, the image cache "
        "holds {}: give it more memory, or show fewer or smaller images side by side",
        group.images.begin + 1, group.images.end, blocks * block_tokens,
        limits.image_blocks * block_tokens);
  }
  return {};
}

}  // namespace

std::string Engine::refusal(const Request& request, const model::LlamaConfig& config,
                            const EngineLimits& limits) {
  const SamplingParams& params = request.sampling;
  if (request.prompt.empty()) return "the prompt has no tokens, at least one is needed";
  if (std::string fault = prompt_fault(request, config); !fault.empty()) return fault;
  if (std::string fault = parameter_fault(params, config.vocab_size); !fault.empty()) return fault;

  const std::int64_t prompt_size = std::ssize(request.prompt);
  // Subtracting first: a huge max_tokens must not overflow.
  if (params.max_tokens > config.max_positions - prompt_size) {
    return fmt::format(
        "prompt ({} tokens) and max_tokens ({}) exceed the model's context length ({} tokens)",
        prompt_size, params.max_tokens, config.max_positions);
  }
  // The last token is not fed back. Every choice can run alone, so the longest one must fit.
  const bool computes = params.max_tokens > 0 || params.prompt_logprobs;
  const std::int64_t positions = prompt_size + params.max_tokens - 1;
  const std::int64_t block_tokens = ops::KvPool::kBlockTokens;
  if (computes && ceil_div(positions, block_tokens) > limits.kv_blocks) {
    return fmt::format(
        "prompt ({} tokens) and max_tokens ({}) exceed the KV cache ({} tokens): give it more "
        "memory or ask for less",
        prompt_size, params.max_tokens, limits.kv_blocks * block_tokens);
  }
  return computes ? image_pool_fault(request, config, limits) : std::string();
}

}  // namespace caravan::engine
