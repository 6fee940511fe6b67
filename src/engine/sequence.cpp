#include "caravan/engine/sequence.h"

namespace caravan::engine {

bool stop_ids_masked(const SamplingParams& params, std::int64_t num_generated) {
  return num_generated < params.min_tokens && !params.stop_ids.empty();
}

bool argmax_suffices(const SamplingParams& params, std::int64_t num_generated) {
  return params.temperature <= 0 && !params.logprobs && params.logit_bias.empty() &&
         params.repetition_penalty == 1.0 && params.presence_penalty == 0.0 &&
         params.frequency_penalty == 0.0 && !stop_ids_masked(params, num_generated);
}

}  // namespace caravan::engine
