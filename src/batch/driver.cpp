#include "caravan/batch/driver.h"

#include <algorithm>
#include <utility>

#include "caravan/core/checked_cast.h"
#include "caravan/core/clock.h"
#include "caravan/core/error.h"
#include "caravan/core/log.h"

namespace caravan::batch {

Driver::Driver(Workload& workload, const PromptBuilder& builder, const ResponseWriter& writer,
               engine::Engine& engine, Journal& journal, ImageStage* images)
    : workload_(&workload),
      builder_(&builder),
      writer_(&writer),
      engine_(&engine),
      journal_(&journal),
      images_(images) {}

RunEnd Driver::run(const DriverOptions& options) {
  const Stopwatch watch;
  Progress progress(options.log_seconds);
  double last_sync = 0;
  bool exhausted = false;
  RunEnd end = RunEnd::kFinished;
  while (true) {
    if (options.stop_requested && options.stop_requested()) {
      end = RunEnd::kStopped;
      break;
    }
    if (!exhausted) {
      const bool texts_left = submit_texts(options.queue_ahead);
      const bool images_left = submit_images(options.queue_ahead);
      exhausted = !texts_left && !images_left;
    }
    if (images_ != nullptr) submit_prepared(options.queue_ahead);
    if (!engine_->idle()) {
      for (engine::Answer& answer : engine_->step()) take(std::move(answer));
    } else if (images_ != nullptr && !images_->empty()) {
      wait_for_images();
    } else if (exhausted) {
      break;
    }
    const double now = watch.seconds();
    if (now - last_sync >= options.sync_seconds) {
      journal_->sync();
      if (options.keep_alive) options.keep_alive();
      last_sync = now;
    }
    if (progress.due(now)) {
      if (const auto line = progress.tick(figures(options, now))) log::info("{}", *line);
    }
  }
  journal_->sync();
  counts_.seconds = watch.seconds();
  return end;
}

/// The next record of its kind that is not done, if there is one.
std::optional<std::int64_t> Driver::next_record(std::int64_t& cursor, bool with_images) const {
  while (cursor < workload_->size() &&
         (journal_->has(cursor) || workload_->has_images(cursor) != with_images)) {
    ++cursor;
  }
  if (cursor == workload_->size()) return std::nullopt;
  return cursor++;
}

/// False when there are no more. Records that never wait (faulty ones, answers of no tokens) must
/// not hold up what follows: signals, syncs, the lock.
bool Driver::submit_texts(std::int64_t queue_ahead) {
  for (std::int64_t taken = 0; taken < queue_ahead; ++taken) {
    if (engine_->num_waiting_texts() >= queue_ahead) break;
    const auto index = next_record(next_text_, false);
    if (!index) return false;
    submit_record(*index);
  }
  return true;
}

bool Driver::submit_images(std::int64_t queue_ahead) {
  for (std::int64_t taken = 0; taken < queue_ahead; ++taken) {
    if (images_ != nullptr && !images_->has_room()) break;
    const auto index = next_record(next_images_, true);
    if (!index) return false;
    submit_record(*index);
  }
  return true;
}

void Driver::submit_record(std::int64_t index) {
  WorkItem item = workload_->item(index);
  if (const auto* fault = std::get_if<RecordFault>(&item.record)) {
    fail(item, *fault);
    return;
  }
  auto& record = std::get<Record>(item.record);
  BuiltPrompts built = builder_->build(record);
  if (const auto* fault = std::get_if<RecordFault>(&built)) {
    fail(item, *fault);
    return;
  }
  StagedRecord staged;
  staged.index = item.index;
  staged.record = std::move(record);
  staged.prompts = std::move(std::get<std::vector<TokenizedPrompt>>(built));
  if (staged.record.images.empty()) {
    submit(std::move(staged));
  } else {
    CARAVAN_ASSERT(images_ != nullptr, "record {} has images, but nothing prepares them",
                   item.index);
    images_->add(std::move(staged));
  }
}

void Driver::submit_prepared(std::int64_t queue_ahead) {
  while (engine_->num_waiting_images() < queue_ahead) {
    std::optional<StagedRecord> staged = images_->next();
    if (!staged) return;
    if (staged->fault) {
      ++counts_.image_errors;
      fail(staged->index, staged->record, *staged->fault);
    } else {
      submit(std::move(*staged));
    }
  }
}

void Driver::submit(StagedRecord staged) {
  std::vector<engine::Request> requests =
      engine_requests(staged.record, staged.prompts, next_request_, prompt_images(staged));
  const auto count = requests.size();
  pending_.emplace(next_request_,
                   Pending{staged.index, std::move(staged.record), std::move(staged.prompts),
                           std::vector<engine::Answer>(count), count, std::move(staged.images)});
  next_request_ += checked_cast<std::int64_t>(count);
  for (engine::Request& request : requests) engine_->submit(std::move(request));
}

void Driver::wait_for_images() {
  const Stopwatch watch;
  images_->wait();
  ++counts_.image_waits;
  counts_.image_wait_seconds += watch.seconds();
}

void Driver::take(engine::Answer answer) {
  auto found = pending_.upper_bound(answer.id);
  CARAVAN_ASSERT(found != pending_.begin(), "answer to the unknown request {}", answer.id);
  --found;
  Pending& pending = found->second;
  const auto slot = checked_cast<std::size_t>(answer.id - found->first);
  CARAVAN_ASSERT(slot < pending.answers.size(), "answer to the unknown request {}", answer.id);
  pending.answers[slot] = std::move(answer);
  if (--pending.missing > 0) return;
  if (images_ != nullptr) images_->release(pending.images);
  finish(pending);
  pending_.erase(found);
}

void Driver::finish(const Pending& pending) {
  for (const engine::Answer& answer : pending.answers) {
    if (!answer.error) continue;
    fail(pending.index, pending.record, {500, "internal_error", *answer.error, ""});
    return;
  }
  journal_->append(pending.index,
                   writer_->answer_line(pending.record, pending.prompts, pending.answers));
  ++counts_.answered;
  counts_.images += std::ssize(pending.images);
  for (std::size_t i = 0; i < pending.answers.size(); ++i) {
    counts_.prompt_tokens += checked_cast<std::int64_t>(pending.prompts[i].ids.size());
    for (const engine::Choice& choice : pending.answers[i].choices) {
      counts_.completion_tokens += checked_cast<std::int64_t>(choice.token_ids.size());
      const bool stopped = choice.finish_reason == engine::FinishReason::kStop;
      ++(stopped ? counts_.finished_stop : counts_.finished_length);
    }
  }
}

void Driver::fail(const WorkItem& item, const RecordFault& fault) {
  journal_->append(item.index, writer_->error_line(item.custom_id, item.content_hash, fault));
  ++counts_.errors;
}

void Driver::fail(std::int64_t index, const Record& record, const RecordFault& fault) {
  fail({index, record.custom_id, record.content_hash, fault}, fault);
}

ProgressFigures Driver::figures(const DriverOptions& options, double seconds) const {
  ProgressFigures figures;
  figures.seconds = seconds;
  figures.done = journal_->num_done();
  figures.done_now = journal_->num_done() - journal_->num_found();
  figures.total = journal_->num_records();
  figures.engine = engine_->statistics();
  figures.kv_share = static_cast<double>(figures.engine.used_blocks) /
                     static_cast<double>(std::max<std::int64_t>(1, options.kv_blocks));
  return figures;
}

}  // namespace caravan::batch
