#pragma once
// Who runs in the next step: running choices' next tokens first, then chunks of prompts and work on
// images, up to a token budget.
//
// Choices are served in the order of their requests. One is admitted when the blocks of all its
// known tokens are free or there already, grows block by block, and when none is left the youngest
// running one is put back: its blocks are freed, its tokens are kept, and what is not found in the
// pool by then is computed again later. The oldest always goes on, so everything ends. No step
// costs more because more requests wait. Requests with images wait in a line of their own: while
// its first one waits for room for its images, those of text alone are admitted beside it, as long
// as its place and its blocks stay free. A sequence whose next rows see an image that is not
// encoded yet keeps its place without rows; the work on images goes along with the rows of the
// others. Plain logic: knows no model, no text.
//
// A step of few rows takes little longer than one of a single row, because it reads all weights in
// any case. So when few choices run and nobody can join them, each gets rows for guesses of its
// next tokens (drafter.h): where a guess is what the row before it chose, its row counts as well.

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "caravan/engine/block_tables.h"
#include "caravan/engine/image_schedule.h"
#include "caravan/engine/sequence.h"
#include "caravan/model/step_plan.h"

namespace caravan::engine {

struct SchedulerLimits {
  std::int64_t max_sequences = 64;     // running at once
  std::int64_t max_step_tokens = 512;  // rows of a step, and what its work on images costs
  std::int64_t kv_blocks = 0;          // in the pool
  std::int64_t block_tokens = 16;      // positions per block
  std::int64_t max_scored_rows = 64;   // rows per step whose logits only score a prompt
  bool prefix_sharing = true;          // between requests
  ImageStoreLimits images;             // none: prompts without images
  std::int64_t max_drafts = 0;         // guessed tokens of a sequence in a step
  std::int64_t max_draft_rows = 12;    // rows of a step with guesses, the others included
  std::int64_t num_tokens = 0;         // ids from here on are never generated
};

/// One step: the plan for all ranks, and whose its rows are.
struct ScheduledStep {
  /// A row whose logits are needed. At a position before the last of a prompt they score the next
  /// prompt token, otherwise they choose the next token.
  struct Use {
    Sequence* sequence = nullptr;
    std::int64_t position = 0;
    bool scores_prompt() const { return position + 1 < sequence->prompt_size(); }
  };
  model::StepPlan plan;
  std::vector<Use> argmax_uses;  // one per plan.argmax_rows
  std::vector<Use> logit_uses;   // one per plan.logit_rows
  std::int64_t decode_rows = 0;  // rows that continue a choice
  std::int64_t draft_rows = 0;   // rows of guesses; the others are prompts or repeats
  double image_work_rows = 0;    // rows of text that cost as much as the work on an image

  bool empty() const { return plan.tokens.empty() && plan.image_work.empty(); }
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);

  /// Queues a sequence behind all others. It stays the caller's, unmoved, until removed.
  /// @pre idle, remaining() > 0, blocks_for(its worst case) <= kv_blocks, and any group of its
  /// images fits the image blocks.
  void submit(Sequence& sequence);

  /// Plans the next step and counts its rows as computed. Empty exactly when nothing is queued or
  /// running. Valid until the next call; plan.number is the caller's.
  ScheduledStep& plan();

  /// Whether a row of the step stands behind the tokens that its sequence has got by now, so that
  /// what it says counts. To be asked once for every use in order, after the sequence has got what
  /// the uses before say: rows of wrong guesses do not count, nor do those of ended sequences.
  bool confirm(const ScheduledStep::Use& use);

  /// The prompt of a running sequence is computed: its other choices start from the same blocks,
  /// right behind it in order.
  void fork(Sequence& parent, std::span<Sequence* const> children);

  /// The row at the last computed position of `sequence` is to be run again, with whole logits.
  void repeat_last_row(Sequence& sequence);

  /// Ends a sequence, wherever it is, and frees its blocks. Idle ones are left alone.
  void remove(Sequence& sequence);

  std::int64_t num_running() const { return std::ssize(running_); }
  std::int64_t num_waiting() const {
    return std::ssize(waiting_texts_) + std::ssize(waiting_images_);
  }
  /// Of these, those with images.
  std::int64_t num_waiting_images() const { return std::ssize(waiting_images_); }
  std::int64_t num_put_backs() const { return num_put_backs_; }
  std::int64_t num_drafted() const { return num_drafted_; }
  std::int64_t num_accepted() const { return num_accepted_; }
  const BlockTables& tables() const { return tables_; }
  const BlockAllocator& blocks() const { return tables_.blocks(); }
  const ImageSchedule& images() const { return images_; }

 private:
  void grow_running();
  void put_back_youngest();
  /// What a waiting sequence takes when it begins to run.
  struct Start {
    Sequence* sequence = nullptr;
    BlockTables::Prefix prefix;
    std::int64_t slots = 0;
    std::int64_t blocks = 0;
  };
  std::deque<Sequence*>& line_of(const Sequence& sequence);
  Sequence* first_waiting() const;
  Start start_of(Sequence& sequence);
  bool has_room(std::int64_t slots, std::int64_t blocks) const;
  Sequence* admit();
  Sequence* begin(const Start& start);
  void settle_drafts();
  std::int64_t drafts_for_each();
  void draft(Sequence& sequence, std::int64_t most);
  void add_next_rows(Sequence& sequence);
  void add_rows(Sequence& sequence, std::int64_t count);
  std::int64_t chunk_of(const Sequence& sequence) const;
  std::int64_t budget_left() const;
  void add_image_work(double max_rows);

  SchedulerLimits limits_;
  std::int64_t max_running_;
  BlockTables tables_;
  ImageSchedule images_;
  std::vector<Sequence*> running_;        // oldest first; older than the waiting ones of their kind
  std::deque<Sequence*> waiting_texts_;   // oldest first
  std::deque<Sequence*> waiting_images_;  // those with images, oldest first
  std::int64_t slots_used_ = 0;           // running ones and the forks they will have
  std::int64_t num_put_backs_ = 0;
  std::int64_t num_drafted_ = 0;
  std::int64_t num_accepted_ = 0;
  std::int64_t scored_rows_left_ = 0;  // of this step
  double image_rows_ = 0;              // of this step's budget, that work on images has taken
  ScheduledStep step_;
};

}  // namespace caravan::engine
