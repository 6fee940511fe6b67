#pragma once
// One choice of a request on its way through the engine, as far as scheduling is concerned: what it
// must compute and which cache blocks it holds.
//
// Plain data that the scheduler and the engine share. Leaves out: decoded text and stop conditions
// (choice_text.h), the request's answer (src/engine/job.h).

#include <cstdint>
#include <vector>

#include "caravan/engine/drafter.h"
#include "caravan/engine/image_visibility.h"
#include "caravan/engine/prefix_index.h"
#include "caravan/engine/request.h"

namespace caravan::engine {

struct StoredImage;

/// Whether the best token alone decides the next token of a choice that has generated
/// `num_generated` tokens: then a step need not gather its logits.
bool argmax_suffices(const SamplingParams& params, std::int64_t num_generated);

/// Whether stop ids are forbidden for the next token, because min_tokens are not reached.
bool stop_ids_masked(const SamplingParams& params, std::int64_t num_generated);

struct Sequence {
  enum class State {
    kIdle,  // not yet forked from the choice that computes the prompt, or finished
    kWaiting,
    kRunning,
  };

  const Request* request = nullptr;
  std::int64_t serial = 0;  // of the request, in order of submission
  std::int64_t choice = 0;  // of the request's n
  State state = State::kIdle;

  std::vector<std::int32_t> generated;
  std::vector<std::int32_t> blocks;  // table: block i holds positions [16 i, 16 i + 16)
  std::int64_t computed = 0;         // positions whose keys and values are in the cache
  PrefixIndex::Prefix prefix = PrefixIndex::kNothing;  // name of the first `prefix_blocks` blocks
  std::int64_t prefix_blocks = 0;                      // full ones that others can find
  std::int64_t pending_forks = 0;                      // choices that will start from its prompt
  std::int64_t scored = 0;                             // prompt log-probabilities known so far
  bool always_whole_logits = false;  // its best token was one that may not be sampled

  Drafter drafter;
  std::vector<std::int32_t> drafts;  // guesses of the tokens from `draft_begin` on, in this step
  std::int64_t draft_begin = 0;

  const ImageVisibility* images = nullptr;  // of a prompt with images
  std::int64_t held_begin = 0;              // image of the request
  std::vector<StoredImage*> held_images;    // of it and the following ones

  std::int64_t prompt_size() const { return static_cast<std::int64_t>(request->prompt.size()); }
  std::int64_t num_generated() const { return static_cast<std::int64_t>(generated.size()); }
  /// Whether a token is sampled after the last known one; false for requests that only score.
  bool samples() const { return request->sampling.max_tokens > 0; }
  /// Positions to compute before anything new can be known. The last token of a prompt that is only
  /// scored predicts nothing that is asked for.
  std::int64_t known() const {
    return samples() ? prompt_size() + num_generated() : prompt_size() - 1;
  }
  std::int64_t remaining() const { return known() - computed; }
  std::int64_t held_end() const {
    return held_begin + static_cast<std::int64_t>(held_images.size());
  }
  std::int32_t token_at(std::int64_t position) const {
    return position < prompt_size() ? request->prompt[static_cast<std::size_t>(position)]
                                    : generated[static_cast<std::size_t>(position - prompt_size())];
  }
};

}  // namespace caravan::engine
