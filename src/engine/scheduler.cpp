#include "caravan/engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "caravan/core/partition.h"

namespace caravan::engine {
namespace {

/// Running places that a sequence takes: its own, and those of the choices that will fork from it.
std::int64_t slots_of(const Sequence& sequence) { return 1 + sequence.pending_forks; }

bool is_older(const Sequence* a, const Sequence* b) {
  return std::pair(a->serial, a->choice) < std::pair(b->serial, b->choice);
}

void clear(ScheduledStep& step) {
  step.plan.tokens.clear();
  step.plan.positions.clear();
  step.plan.segments.clear();
  step.plan.blocks.clear();
  step.plan.block_copies.clear();
  step.plan.argmax_rows.clear();
  step.plan.logit_rows.clear();
  step.plan.image_work.clear();
  step.plan.pixels.clear();
  step.plan.image_blocks.clear();
  step.plan.image_rows.clear();
  step.plan.seen_tokens.clear();
  step.plan.seen_blocks.clear();
  step.argmax_uses.clear();
  step.logit_uses.clear();
  step.decode_rows = 0;
  step.draft_rows = 0;
  step.image_work_rows = 0;
}

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits)
    : limits_(limits),
      // Every running sequence's next token must fit a step.
      max_running_(std::min(limits.max_sequences, limits.max_step_tokens)),
      tables_({limits.kv_blocks, limits.block_tokens, limits.prefix_sharing}),
      images_(limits.images) {
  CARAVAN_ASSERT(
      max_running_ >= 1 && limits.block_tokens >= 1 && limits.max_scored_rows >= 1,
      "limits of the scheduler must be positive: {} sequences, {} step tokens, blocks of "
      "{} tokens, {} scored rows",
      limits.max_sequences, limits.max_step_tokens, limits.block_tokens, limits.max_scored_rows);
}

std::int64_t Scheduler::budget_left() const {
  const double left = static_cast<double>(limits_.max_step_tokens - std::ssize(step_.plan.tokens));
  return static_cast<std::int64_t>(std::max(0.0, left - image_rows_));
}

/// A single unit may cost more than it was given: the rest of the budget does not pay for that.
void Scheduler::add_image_work(double max_rows) {
  const double rows = images_.add_work(running_, max_rows, step_.plan);
  step_.image_work_rows += rows;
  image_rows_ += std::min(rows, max_rows);
}

void Scheduler::submit(Sequence& sequence) {
  CARAVAN_ASSERT(sequence.state == Sequence::State::kIdle && sequence.remaining() > 0,
                 "a submitted sequence must be idle and have something to compute");
  sequence.state = Sequence::State::kWaiting;
  line_of(sequence).push_back(&sequence);
}

std::deque<Sequence*>& Scheduler::line_of(const Sequence& sequence) {
  return sequence.images == nullptr ? waiting_texts_ : waiting_images_;
}

ScheduledStep& Scheduler::plan() {
  clear(step_);
  scored_rows_left_ = limits_.max_scored_rows;
  image_rows_ = 0;
  const std::int64_t put_backs_before = num_put_backs_;
  settle_drafts();
  grow_running();
  images_.begin_step(running_);
  const std::int64_t most_drafts = drafts_for_each();
  for (Sequence* sequence : running_) {
    if (sequence->remaining() != 1) continue;
    if (most_drafts > 0) draft(*sequence, most_drafts);
    add_rows(*sequence, chunk_of(*sequence));
  }
  // Half of what is left, so that prompts without images go on beside any number of images, and
  // images beside any number of prompts.
  add_image_work(static_cast<double>(budget_left()) / 2);
  // The first loop's sequences have nothing left to do.
  for (Sequence* sequence : running_) add_next_rows(*sequence);
  // Who was just put back must not take the blocks at once that an older one needs next.
  if (num_put_backs_ == put_backs_before) {
    while (budget_left() > 0) {
      Sequence* const newcomer = admit();
      if (newcomer == nullptr) break;
      add_next_rows(*newcomer);
    }
  }
  // What prompts did not need, also for those who came just now.
  add_image_work(static_cast<double>(budget_left()));
  CARAVAN_ASSERT(!step_.empty() || (running_.empty() && num_waiting() == 0),
                 "nothing can run, with {} sequences running, {} waiting and {} of {} blocks free",
                 num_running(), num_waiting(), blocks().num_free(), blocks().num_blocks());
  return step_;
}

void Scheduler::grow_running() {
  // Oldest first; victims are taken from the other end, so whoever has grown keeps its blocks.
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    while (sequence.state == Sequence::State::kRunning &&
           !(tables_.make_writable(sequence, step_.plan.block_copies) && tables_.grow(sequence))) {
      put_back_youngest();
    }
  }
}

void Scheduler::put_back_youngest() {
  CARAVAN_ASSERT(running_.size() > 1, "a single sequence of {} tokens does not fit {} KV blocks",
                 running_.front()->known(), blocks().num_blocks());
  Sequence& sequence = *running_.back();
  running_.pop_back();
  slots_used_ -= slots_of(sequence);
  tables_.release(sequence);
  images_.release(sequence);
  sequence.state = Sequence::State::kWaiting;
  line_of(sequence).push_front(&sequence);
  ++num_put_backs_;
}

/// The oldest of those that wait; null if nobody does.
Sequence* Scheduler::first_waiting() const {
  if (waiting_texts_.empty()) return waiting_images_.empty() ? nullptr : waiting_images_.front();
  if (waiting_images_.empty()) return waiting_texts_.front();
  return std::min(waiting_texts_.front(), waiting_images_.front(), is_older);
}

Scheduler::Start Scheduler::start_of(Sequence& sequence) {
  Start start{&sequence, tables_.find_prefix(sequence), slots_of(sequence), 0};
  start.blocks = tables_.blocks_to_start(sequence, start.prefix);
  return start;
}

/// Whether that many running places, and blocks with one more for everyone who runs, so that a
/// newcomer is not put back at once, are free. An empty machine takes anybody.
bool Scheduler::has_room(std::int64_t slots, std::int64_t blocks) const {
  return (running_.empty() || slots_used_ + slots <= max_running_) &&
         blocks + num_running() <= this->blocks().num_free();
}

/// Begins the next sequence; null if none can now. In order, but text does not wait for the images
/// of others: it takes nothing that the first one in line could use, so that one begins as soon as
/// images are given back.
Sequence* Scheduler::admit() {
  Sequence* const first = first_waiting();
  if (first == nullptr) return nullptr;
  const Start start = start_of(*first);
  if (!has_room(start.slots, start.blocks)) return nullptr;
  if (images_.admit(*first, start.prefix.num_positions, running_)) return begin(start);
  if (waiting_texts_.empty()) return nullptr;
  const Start text = start_of(*waiting_texts_.front());
  if (!has_room(start.slots + text.slots, start.blocks + text.blocks)) return nullptr;
  return begin(text);
}

Sequence* Scheduler::begin(const Start& start) {
  Sequence& sequence = *start.sequence;
  tables_.start(sequence, start.prefix);
  line_of(sequence).pop_front();
  sequence.state = Sequence::State::kRunning;
  slots_used_ += start.slots;
  running_.insert(std::upper_bound(running_.begin(), running_.end(), &sequence, is_older),
                  &sequence);
  return &sequence;
}

/// Rows of a prompt, but for those that others have computed meanwhile, or compute in this step:
/// many sequences may have begun before the image that they all wait for was encoded.
void Scheduler::add_next_rows(Sequence& sequence) {
  if (sequence.remaining() == 0 || budget_left() == 0) return;
  // One row at least is left to the sequence, so that no step is empty while somebody runs.
  tables_.skip_computed(sequence, images_.computable_end(sequence) - 1);
  add_rows(sequence, chunk_of(sequence));
}

std::int64_t Scheduler::chunk_of(const Sequence& sequence) const {
  std::int64_t count =
      std::min(images_.computable_end(sequence) - sequence.computed, budget_left());
  if (count <= 0) return 0;
  if (!sequence.request->sampling.prompt_logprobs) return count;
  const std::int64_t first_scored = std::max(sequence.computed, sequence.scored - 1);
  const std::int64_t scored_end = std::min(sequence.computed + count, sequence.prompt_size() - 1);
  if (scored_end - first_scored > scored_rows_left_) {
    count = first_scored + scored_rows_left_ - sequence.computed;
  }
  return count;
}

/// Rows of the next `count` positions; of guesses too if the sequence has some and they are all of
/// the others.
void Scheduler::add_rows(Sequence& sequence, std::int64_t count) {
  if (count <= 0) return;
  model::StepPlan& plan = step_.plan;
  const auto row_begin = checked_cast<std::int32_t>(plan.tokens.size());
  const std::int64_t begin = sequence.computed;
  const std::int64_t known = sequence.known();
  const std::int64_t num_drafts = begin + count == known ? std::ssize(sequence.drafts) : 0;
  const std::int64_t end = begin + count + num_drafts;
  const std::int64_t block_count = tables_.blocks_for(end);
  plan.segments.push_back(
      {row_begin, checked_cast<std::int32_t>(end - begin), checked_cast<std::int32_t>(begin),
       checked_cast<std::int32_t>(plan.blocks.size()), checked_cast<std::int32_t>(block_count)});
  plan.blocks.insert(plan.blocks.end(), sequence.blocks.begin(),
                     sequence.blocks.begin() + block_count);
  const SamplingParams& sampling = sequence.request->sampling;
  for (std::int64_t position = begin; position < end; ++position) {
    const auto row = static_cast<std::int32_t>(plan.tokens.size());
    plan.tokens.push_back(position < known
                              ? sequence.token_at(position)
                              : sequence.drafts[static_cast<std::size_t>(position - known)]);
    plan.positions.push_back(static_cast<std::int32_t>(position));
    const std::int64_t next = position + 1;
    const bool in_prompt = next < sequence.prompt_size();
    if (in_prompt ? sampling.prompt_logprobs && next >= sequence.scored
                  : sequence.samples() && next >= known) {
      const bool best_only = !in_prompt && !sequence.always_whole_logits &&
                             argmax_suffices(sampling, next - sequence.prompt_size());
      (best_only ? plan.argmax_rows : plan.logit_rows).push_back(row);
      (best_only ? step_.argmax_uses : step_.logit_uses).push_back({&sequence, position});
      if (in_prompt) --scored_rows_left_;
    }
  }
  if (count == 1 && begin >= sequence.prompt_size()) ++step_.decode_rows;
  step_.draft_rows += num_drafts;
  images_.add_rows(sequence, {begin, end}, row_begin, plan);
  sequence.computed = begin + count;
  tables_.note_computed(sequence);
}

/// Takes stock of the guesses of the last step.
void Scheduler::settle_drafts() {
  for (Sequence* sequence : running_) {
    if (sequence->drafts.empty()) continue;
    // A row to be repeated stands before all guesses.
    const std::int64_t accepted = sequence->computed - sequence->draft_begin;
    sequence->drafter.settle(std::ssize(sequence->drafts), std::max<std::int64_t>(0, accepted));
    sequence->drafts.clear();
    tables_.trim(*sequence);
  }
}

/// Guesses that each running sequence may have in this step: none if rows of prompts or work on
/// images come along, now or by those who could start.
std::int64_t Scheduler::drafts_for_each() {
  if (limits_.max_drafts == 0 || running_.empty()) return 0;
  const std::int64_t rows = std::min(limits_.max_draft_rows, limits_.max_step_tokens);
  const std::int64_t most = std::min(limits_.max_drafts, rows / num_running() - 1);
  if (most <= 0 || images_.store().num_unencoded() > 0 ||
      std::any_of(running_.begin(), running_.end(),
                  [](const Sequence* sequence) { return sequence->remaining() > 1; })) {
    return 0;
  }
  Sequence* const next = first_waiting();
  if (next == nullptr) return most;
  const Start start = start_of(*next);
  return has_room(start.slots, start.blocks) ? 0 : most;
}

void Scheduler::draft(Sequence& sequence, std::int64_t most) {
  const Request& request = *sequence.request;
  const std::int64_t known = sequence.known();
  if (!sequence.samples() || sequence.pending_forks > 0 ||
      images_.computable_end(sequence) < known) {
    return;
  }
  // A row for each token that is still asked for.
  most = std::min(most, request.sampling.max_tokens - sequence.num_generated() - 1);
  if (most <= 0) return;
  sequence.drafter.propose({request.prompt, sequence.generated}, most, limits_.num_tokens,
                           sequence.drafts);
  const std::int64_t end = tables_.reserve(sequence, known + std::ssize(sequence.drafts));
  sequence.drafts.resize(static_cast<std::size_t>(end - known));
  sequence.draft_begin = known;
  num_drafted_ += end - known;
}

bool Scheduler::confirm(const ScheduledStep::Use& use) {
  Sequence& sequence = *use.sequence;
  if (sequence.state != Sequence::State::kRunning) return false;
  if (use.position < sequence.computed) return true;
  if (use.position + 1 != sequence.known()) return false;
  const auto index = static_cast<std::size_t>(use.position - sequence.draft_begin);
  if (sequence.drafts[index] != sequence.token_at(use.position)) return false;
  // The row's keys and values are those of the token that it got.
  sequence.computed = use.position + 1;
  tables_.note_computed(sequence);
  ++num_accepted_;
  return true;
}

void Scheduler::fork(Sequence& parent, std::span<Sequence* const> children) {
  CARAVAN_ASSERT(parent.state == Sequence::State::kRunning && parent.generated.empty() &&
                     parent.computed == parent.prompt_size() &&
                     parent.pending_forks == std::ssize(children),
                 "only a running sequence that has just computed its prompt can fork");
  auto place = std::find(running_.begin(), running_.end(), &parent) + 1;
  slots_used_ -= parent.pending_forks;
  parent.pending_forks = 0;
  // Children that find no running place wait at the front, in order; nothing younger runs then,
  // because the parent's admission reserved all places.
  std::vector<Sequence*> late;
  for (Sequence* child : children) {
    child->scored = child->prompt_size();  // the parent's rows did it
    if (slots_used_ >= max_running_) {
      child->state = Sequence::State::kWaiting;
      late.push_back(child);
      continue;
    }
    child->state = Sequence::State::kRunning;
    tables_.share(parent, *child);
    images_.share(parent, *child);
    place = running_.insert(place, child) + 1;
    ++slots_used_;
  }
  std::deque<Sequence*>& line = line_of(parent);
  line.insert(line.begin(), late.begin(), late.end());
}

void Scheduler::repeat_last_row(Sequence& sequence) {
  CARAVAN_ASSERT(sequence.state == Sequence::State::kRunning && sequence.computed > 0,
                 "only a running sequence can repeat its last row");
  sequence.always_whole_logits = true;
  --sequence.computed;
}

void Scheduler::remove(Sequence& sequence) {
  switch (sequence.state) {
    case Sequence::State::kIdle: return;
    case Sequence::State::kWaiting: {
      std::deque<Sequence*>& line = line_of(sequence);
      line.erase(std::find(line.begin(), line.end(), &sequence));
      break;
    }
    case Sequence::State::kRunning:
      running_.erase(std::find(running_.begin(), running_.end(), &sequence));
      slots_used_ -= slots_of(sequence);
      tables_.release(sequence);
      images_.release(sequence);
      break;
  }
  sequence.state = Sequence::State::kIdle;
}

}  // namespace caravan::engine
