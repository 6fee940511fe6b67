#include "caravan/engine/engine.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "caravan/core/clock.h"
#include "caravan/core/error.h"
#include "caravan/core/standard_floats.h"
#include "caravan/engine/sampler.h"
#include "caravan/engine/scheduler.h"
#include "caravan/ops/kv_pool.h"
#include "choices_ahead.h"
#include "job.h"

namespace caravan::engine {
namespace {

using Action = model::StepPlan::Action;
using LogitsUser = std::function<void(std::int64_t, std::span<const float>)>;  // of a block

/// A step of 2, 4, 6, 8, 12 and 16 rows took 1.1, 1.2, 1.25, 1.65, 1.8 and 2.7 times as long as one
/// of one row (SmolLM2-135M, AVX-512, fp32 and bf16 weights alike).
constexpr std::int64_t kDraftRows = 12;

/// The collective part of a step, the same on every rank. Returns the best tokens of argmax_rows.
std::span<const ops::ArgMax> run_plan(model::Decoder& decoder, const model::StepPlan& plan,
                                      const LogitsUser& use_logits) {
  std::span<const ops::ArgMax> best;
  decoder.forward(plan);
  if (!plan.argmax_rows.empty()) best = decoder.argmax();
  if (!plan.logit_rows.empty()) decoder.logit_blocks(use_logits);
  return best;
}

SchedulerLimits scheduler_limits(const EngineLimits& limits, const model::LlamaConfig& config,
                                 std::int64_t num_tokens) {
  SchedulerLimits result;
  result.max_sequences = limits.max_sequences;
  result.max_step_tokens = limits.max_step_tokens;
  // Logits come a few rows at a time (Decoder::logits), so scored rows cost no more memory.
  result.max_scored_rows = limits.max_step_tokens;
  result.kv_blocks = limits.kv_blocks;
  result.block_tokens = ops::KvPool::kBlockTokens;
  result.prefix_sharing = limits.prefix_sharing;
  result.max_drafts = limits.max_drafts;
  result.max_draft_rows = std::max(kDraftRows, limits.max_drafts + 1);
  result.num_tokens = num_tokens;
  result.images = {limits.image_blocks, ops::KvPool::kBlockTokens, image_costs(config)};
  return result;
}

void check_pixels(const PromptImage& image, const model::VisionConfig& vision) {
  const std::int64_t wanted = image.grid.num_tiles() * 3 * vision.tile_size * vision.tile_size;
  const std::int64_t found = image.pixels ? std::ssize(*image.pixels) : 0;
  CARAVAN_ASSERT(found == wanted, "image {} has {} bytes of pixels, {} tiles of {} x {} need {}",
                 image.content_hash, found, image.grid.num_tiles(), vision.tile_size,
                 vision.tile_size, wanted);
}

}  // namespace

struct Engine::State {
  State(model::Decoder& model_decoder, parallel::Communicator& group, const ops::Context& context,
        const text::Tokenizer& model_tokenizer, const EngineLimits& engine_limits)
      : decoder(model_decoder),
        communicator(group),
        tokenizer(model_tokenizer),
        limits(engine_limits),
        sampler(context, model_decoder.config().vocab_size, model_tokenizer.vocab_size()),
        choices_ahead(context, model_decoder.config().vocab_size, model_tokenizer.vocab_size()),
        scheduler(
            scheduler_limits(engine_limits, model_decoder.config(), sampler.num_sampleable())) {}

  void broadcast(model::StepPlan& plan);
  void run(ScheduledStep& step);
  void use_block(std::span<const ScheduledStep::Use> uses, std::span<const float> block);
  std::span<ChoicesAhead::Choice> choose_ahead(std::span<const ScheduledStep::Use> uses,
                                               std::span<const float> block);
  void use_row(const ScheduledStep::Use& use, std::span<const float> logits,
               ChoicesAhead::Choice ahead);
  void score_prompt(Job& job, std::int64_t position, std::span<const float> logits);
  void choose_token(Job& job, Sequence& sequence, std::span<const float> logits,
                    ChoicesAhead::Choice ahead);
  void use_best(const ScheduledStep::Use& use, const ops::ArgMax& best);
  void start_forks(Job& job, Sequence& sequence);
  void add_token(Job& job, Sequence& sequence, std::int32_t id,
                 std::optional<TokenLogprob> logprob);
  void fail(Job& job, std::string error);
  void finish_if_complete(Job& job);
  void count(const ScheduledStep& step, double seconds);
  std::vector<Answer> take_answers();

  model::Decoder& decoder;
  parallel::Communicator& communicator;
  const text::Tokenizer& tokenizer;
  EngineLimits limits;
  Sampler sampler;
  ChoicesAhead choices_ahead;
  std::vector<ChoicesAhead::Row> rows_ahead;  // of the block in use
  Scheduler scheduler;
  std::unordered_map<std::int64_t, std::unique_ptr<Job>> jobs;  // by serial
  std::vector<std::int64_t> complete;  // serials; destroyed at the end of the step, whose rows may
                                       // still point to their sequences
  std::int64_t next_serial = 0;
  std::int64_t next_step = 0;
  std::vector<std::byte> plan_bytes;
  EngineStatistics statistics;
};

Engine::Engine(model::Decoder& decoder, parallel::Communicator& communicator,
               const ops::Context& context, const text::Tokenizer& tokenizer,
               const EngineLimits& limits)
    : state_(std::make_unique<State>(decoder, communicator, context, tokenizer, limits)) {
  CARAVAN_ASSERT(communicator.rank() == 0,
                 "the engine runs on rank 0 of its group, this is rank {}", communicator.rank());
}

Engine::~Engine() = default;

void Engine::submit(Request request) {
  State& state = *state_;
  const std::string reason = refusal(request, state.decoder.config(), state.limits);
  CARAVAN_ASSERT(reason.empty(), "request {} was submitted although it cannot run: {}", request.id,
                 reason);
  const std::int64_t serial = state.next_serial++;
  const auto& vision = state.decoder.config().vision;
  auto job = std::make_unique<Job>(std::move(request), serial, state.tokenizer,
                                   vision ? vision->image_token_id : -1);
  if (job->complete()) {
    state.complete.push_back(serial);
  } else {
    for (const PromptImage& image : job->request().images) check_pixels(image, *vision);
    state.scheduler.submit(job->sequence(0));
  }
  state.jobs.emplace(serial, std::move(job));
}

std::int64_t Engine::num_waiting_texts() const {
  return state_->scheduler.num_waiting() - num_waiting_images();
}

std::int64_t Engine::num_waiting_images() const { return state_->scheduler.num_waiting_images(); }

bool Engine::idle() const { return state_->jobs.empty(); }

std::vector<Answer> Engine::step() {
  State& state = *state_;
  const StandardFloats floats;  // of the sampler; operations see to their own
  const Stopwatch watch;
  ScheduledStep& step = state.scheduler.plan();
  if (!step.empty()) {
    state.run(step);
    state.count(step, watch.seconds());
  }
  return state.take_answers();
}

void Engine::State::broadcast(model::StepPlan& plan) {
  plan.number = next_step++;
  plan.serialize_to(plan_bytes);
  communicator.broadcast(plan_bytes);
}

void Engine::State::run(ScheduledStep& step) {
  broadcast(step.plan);
  const Stopwatch watch;
  double use_seconds = 0;
  const auto best =
      run_plan(decoder, step.plan, [&](std::int64_t begin, std::span<const float> block) {
        const Stopwatch use;
        const std::span<const ScheduledStep::Use> uses(step.logit_uses);
        use_block(uses.subspan(static_cast<std::size_t>(begin)), block);
        use_seconds += use.seconds();
      });
  statistics.model_seconds += watch.seconds() - use_seconds;
  // After the scores: the last prompt token's score may come from this step as well as the token
  // that ends the request.
  for (std::size_t i = 0; i < best.size(); ++i) use_best(step.argmax_uses[i], best[i]);
}

/// @param uses  of the block's rows, and of those that follow.
void Engine::State::use_block(std::span<const ScheduledStep::Use> uses,
                              std::span<const float> block) {
  const auto width = static_cast<std::size_t>(decoder.config().vocab_size);
  uses = uses.first(block.size() / width);
  const auto choices = choose_ahead(uses, block);
  for (std::size_t i = 0; i < uses.size(); ++i) {
    use_row(uses[i], block.subspan(i * width, width), std::move(choices[i]));
  }
}

/// Choices of the rows that no other row of the step has a say in: the next token of a choice, but
/// not what follows a guess, nor the first tokens of several choices, which draw from one row.
std::span<ChoicesAhead::Choice> Engine::State::choose_ahead(
    std::span<const ScheduledStep::Use> uses, std::span<const float> block) {
  const auto width = static_cast<std::size_t>(decoder.config().vocab_size);
  rows_ahead.clear();
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const Sequence& sequence = *uses[i].sequence;
    ChoicesAhead::Row& row = rows_ahead.emplace_back();
    if (uses[i].scores_prompt() || uses[i].position + 1 != sequence.known() ||
        sequence.pending_forks > 0) {
      continue;
    }
    row = {block.subspan(i * width, width), sequence.request, sequence.generated, sequence.choice};
  }
  return choices_ahead.choose(rows_ahead);
}

void Engine::State::use_row(const ScheduledStep::Use& use, std::span<const float> logits,
                            ChoicesAhead::Choice ahead) {
  Job& job = *jobs.at(use.sequence->serial);
  if (job.complete()) return;  // ended by an earlier row of this step
  if (!scheduler.confirm(use)) return;
  if (ahead.id) {
    choose_token(job, *use.sequence, logits, std::move(ahead));
  } else if (std::string fault = sampler.row_fault(logits); !fault.empty()) {
    fail(job, std::move(fault));
  } else if (use.scores_prompt()) {
    score_prompt(job, use.position, logits);
  } else {
    choose_token(job, *use.sequence, logits, {});
  }
}

void Engine::State::score_prompt(Job& job, std::int64_t position, std::span<const float> logits) {
  const std::int32_t next = job.request().prompt[static_cast<std::size_t>(position + 1)];
  if (next < decoder.config().vocab_size) {
    job.add_prompt_logprob(
        sampler.logprob(logits, next, job.request().sampling.top_prompt_logprobs));
  } else {
    job.add_prompt_logprob({next, 0, {}});  // an image, which no row predicts
  }
  finish_if_complete(job);
}

void Engine::State::choose_token(Job& job, Sequence& sequence, std::span<const float> logits,
                                 ChoicesAhead::Choice ahead) {
  if (ahead.id) {
    add_token(job, sequence, *ahead.id, std::move(ahead.logprob));
    return;
  }
  const bool first = sequence.pending_forks > 0;
  if (first) start_forks(job, sequence);
  const SamplingParams& params = job.request().sampling;
  for (std::int64_t choice = sequence.choice; choice < job.num_choices(); ++choice) {
    Sequence& current = job.sequence(choice);
    const auto id =
        sampler.choose(logits, {params, job.request().prompt, current.generated, current.choice});
    if (!id) {
      fail(
          job,
          "no token may follow: stop ids are forbidden before min_tokens and nothing else is left");
      return;
    }
    std::optional<TokenLogprob> logprob;
    if (params.logprobs) logprob = sampler.logprob(logits, *id, params.top_logprobs);
    add_token(job, current, *id, std::move(logprob));
    if (!first) return;
  }
}

void Engine::State::use_best(const ScheduledStep::Use& use, const ops::ArgMax& best) {
  Sequence& sequence = *use.sequence;
  Job& job = *jobs.at(sequence.serial);
  if (job.complete() || !scheduler.confirm(use)) return;
  if (std::string fault = logit_fault(best.value); !fault.empty()) {
    fail(job, std::move(fault));
    return;
  }
  if (best.index >= sampler.num_sampleable()) {
    // The best id is padding of the vocabulary: the whole row says which is the best real one.
    scheduler.repeat_last_row(sequence);
    return;
  }
  const bool first = sequence.pending_forks > 0;
  if (first) start_forks(job, sequence);
  const std::int64_t end = first ? job.num_choices() : sequence.choice + 1;
  for (std::int64_t choice = sequence.choice; choice < end; ++choice) {
    add_token(job, job.sequence(choice), best.index, std::nullopt);
  }
}

void Engine::State::start_forks(Job& job, Sequence& sequence) {
  const std::vector<Sequence*> forks = job.forks();
  scheduler.fork(sequence, forks);
}

void Engine::State::add_token(Job& job, Sequence& sequence, std::int32_t id,
                              std::optional<TokenLogprob> logprob) {
  ++statistics.generated_tokens;
  if (!job.add_token(sequence.choice, id, std::move(logprob))) return;
  scheduler.remove(sequence);
  finish_if_complete(job);
}

void Engine::State::fail(Job& job, std::string error) {
  job.fail(std::move(error));
  finish_if_complete(job);
}

void Engine::State::finish_if_complete(Job& job) {
  if (!job.complete()) return;
  for (std::int64_t choice = 0; choice < job.num_choices(); ++choice) {
    scheduler.remove(job.sequence(choice));
  }
  complete.push_back(job.serial());
}

std::vector<Answer> Engine::State::take_answers() {
  std::vector<Answer> answers;
  answers.reserve(complete.size());
  for (const std::int64_t serial : complete) {
    const auto job = jobs.find(serial);
    answers.push_back(job->second->take_answer());
    jobs.erase(job);
  }
  complete.clear();
  return answers;
}

void Engine::State::count(const ScheduledStep& step, double seconds) {
  const auto rows = std::ssize(step.plan.tokens);
  ++statistics.steps;
  const std::int64_t decode_rows = step.decode_rows + step.draft_rows;
  statistics.prompt_tokens += rows - decode_rows;
  statistics.decode_tokens += step.decode_rows;
  const double row_seconds = seconds / (static_cast<double>(rows) + step.image_work_rows);
  statistics.decode_seconds += row_seconds * static_cast<double>(decode_rows);
  statistics.prefill_seconds += row_seconds * static_cast<double>(rows - decode_rows);
  statistics.encoder_seconds += row_seconds * step.image_work_rows;
}

void Engine::stop() {
  model::StepPlan plan;
  plan.action = Action::kStop;
  state_->broadcast(plan);
}

EngineStatistics Engine::statistics() const {
  const State& state = *state_;
  EngineStatistics result = state.statistics;
  result.put_backs = state.scheduler.num_put_backs();
  result.drafted_tokens = state.scheduler.num_drafted();
  result.accepted_tokens = state.scheduler.num_accepted();
  result.decode_tokens += result.accepted_tokens;
  result.running = state.scheduler.num_running();
  result.waiting = state.scheduler.num_waiting();
  result.reused_tokens = state.scheduler.tables().num_reused_positions();
  result.used_blocks = state.scheduler.blocks().num_used();
  result.cached_blocks = state.scheduler.blocks().num_cached();
  const ImageSchedule& images = state.scheduler.images();
  const ImageStore& store = images.store();
  result.images_encoded = store.num_encoded();
  result.images_reused = store.num_reused();
  result.image_put_backs = images.num_put_backs();
  result.used_image_blocks = store.blocks().num_used() - store.num_unreferenced_blocks();
  return result;
}

void Engine::follow(model::Decoder& decoder, parallel::Communicator& communicator) {
  std::vector<std::byte> bytes;
  model::StepPlan plan;
  for (std::int64_t expected = 0;; ++expected) {
    communicator.broadcast(bytes);
    plan.deserialize_from(bytes);
    CARAVAN_ASSERT(plan.number == expected, "rank {} expected step {} and received step {}",
                   communicator.rank(), expected, plan.number);
    switch (plan.action) {
      case Action::kStop: return;
      case Action::kForward: run_plan(decoder, plan, [](std::int64_t, std::span<const float>) {});
    }
  }
}

}  // namespace caravan::engine
