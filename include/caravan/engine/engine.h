#pragma once
// Continuous batching on one tensor-parallel group. The leader (rank 0) takes requests, plans steps
// and samples; the other ranks follow the broadcast plans. A request's answer depends on the model
// and the request alone.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "caravan/engine/request.h"
#include "caravan/model/decoder.h"
#include "caravan/ops/context.h"
#include "caravan/parallel/communicator.h"
#include "caravan/text/tokenizer.h"

namespace caravan::engine {

struct EngineLimits {
  std::int64_t max_sequences = 64;     // running at once
  std::int64_t max_step_tokens = 512;  // rows of a step
  std::int64_t kv_blocks = 0;          // blocks in the pool, the same on every rank
  std::int64_t image_blocks = 0;       // blocks of image tokens in theirs, as the decoder's limits
  bool prefix_sharing = true;          // prompts that begin alike are computed once
  std::int64_t max_drafts = 11;        // guessed tokens of a choice in a step; 0: none
};

struct EngineStatistics {
  std::int64_t steps = 0;
  std::int64_t prompt_tokens = 0;  // computed, repeats after put-back included
  std::int64_t reused_tokens = 0;  // of prompts and repeats, found in the KV cache instead
  std::int64_t generated_tokens = 0;
  std::int64_t decode_tokens = 0;    // of these, those that took a row of their own
  std::int64_t drafted_tokens = 0;   // guesses that were tried
  std::int64_t accepted_tokens = 0;  // of these, those that came true; within decode_tokens
  std::int64_t put_backs = 0;
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  std::int64_t used_blocks = 0;    // that running choices hold
  std::int64_t cached_blocks = 0;  // others whose content may be used again
  double prefill_seconds = 0;      // step time shared out by rows
  double decode_seconds = 0;
  double encoder_seconds = 0;          // shared out by estimated cost
  double model_seconds = 0;            // of the steps' time, in the model; the rest is the leader's
  std::int64_t images_encoded = 0;     // repeats included
  std::int64_t images_reused = 0;      // times a prompt found its image there
  std::int64_t image_put_backs = 0;    // times a choice lost its images to an older one
  std::int64_t used_image_blocks = 0;  // of images that a running choice needs
};

class Engine {
 public:
  /// Made on the leader only. All references outlive the engine.
  Engine(model::Decoder& decoder, parallel::Communicator& communicator, const ops::Context& context,
         const text::Tokenizer& tokenizer, const EngineLimits& limits);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Why this request can never run ("prompt (900 tokens) and max_tokens (200) exceed the KV cache
  /// (1024 tokens)"), or empty. submit() requires it to be empty.
  static std::string refusal(const Request& request, const model::LlamaConfig& config,
                             const EngineLimits& limits);

  /// Queues a request; first come, first served, but text need not wait for others' images.
  void submit(Request request);
  /// Requests that are queued but not running: the caller keeps this small to bound memory. Those
  /// of text alone may overtake those with images, so that each kind wants a queue of its own.
  std::int64_t num_waiting_texts() const;
  std::int64_t num_waiting_images() const;
  bool idle() const;

  /// Plans, broadcasts and runs one step, samples, and returns the requests that finished.
  /// Collective with follow().
  std::vector<Answer> step();

  /// Ends the followers. Collective, once, last.
  void stop();

  EngineStatistics statistics() const;

  /// What every other rank does until the leader stops: receive a plan, run it. Collective.
  static void follow(model::Decoder& decoder, parallel::Communicator& communicator);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace caravan::engine
