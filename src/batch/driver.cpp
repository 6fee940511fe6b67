#include "caravan/batch/driver.h"

#include <algorithm>
#include <utility>

#include "caravan/core/checked_cast.h"
#include "caravan/core/clock.h"
#include "caravan/core/error.h"
#include "caravan/core/log.h"

namespace caravan::batch {

Driver::Driver(Workload& workload, const PromptBuilder& builder, const ResponseWriter& writer,
               engine::Engine& engine, Journal& journal)
    : workload_(&workload),
      builder_(&builder),
      writer_(&writer),
      engine_(&engine),
      journal_(&journal) {}

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
    // Records that never wait (faulty ones, answers of no tokens) must not hold up what follows
    // below: signals, syncs, the lock.
    for (std::int64_t taken = 0; !exhausted && taken < options.queue_ahead; ++taken) {
      if (engine_->num_waiting() >= options.queue_ahead) break;
      exhausted = !submit_next();
    }
    if (!engine_->idle()) {
      for (engine::Answer& answer : engine_->step()) take(std::move(answer));
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

bool Driver::submit_next() {
  while (next_record_ < workload_->size() && journal_->has(next_record_)) ++next_record_;
  if (next_record_ == workload_->size()) return false;
  WorkItem item = workload_->item(next_record_++);
  if (const auto* fault = std::get_if<RecordFault>(&item.record)) {
    fail(item.index, item.custom_id, *fault);
    return true;
  }
  auto& record = std::get<Record>(item.record);
  BuiltPrompts built = builder_->build(record);
  if (const auto* fault = std::get_if<RecordFault>(&built)) {
    fail(item.index, item.custom_id, *fault);
    return true;
  }
  auto& prompts = std::get<std::vector<TokenizedPrompt>>(built);
  std::vector<engine::Request> requests = engine_requests(record, prompts, next_request_);
  const auto count = requests.size();
  pending_.emplace(next_request_, Pending{item.index, std::move(record), std::move(prompts),
                                          std::vector<engine::Answer>(count), count});
  next_request_ += checked_cast<std::int64_t>(count);
  for (engine::Request& request : requests) engine_->submit(std::move(request));
  return true;
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
  finish(pending);
  pending_.erase(found);
}

void Driver::finish(const Pending& pending) {
  for (const engine::Answer& answer : pending.answers) {
    if (!answer.error) continue;
    fail(pending.index, pending.record.custom_id, {500, "internal_error", *answer.error, ""});
    return;
  }
  journal_->append(pending.index,
                   writer_->answer_line(pending.record, pending.prompts, pending.answers));
  ++counts_.answered;
  for (std::size_t i = 0; i < pending.answers.size(); ++i) {
    counts_.prompt_tokens += checked_cast<std::int64_t>(pending.prompts[i].ids.size());
    for (const engine::Choice& choice : pending.answers[i].choices) {
      counts_.completion_tokens += checked_cast<std::int64_t>(choice.token_ids.size());
      const bool stopped = choice.finish_reason == engine::FinishReason::kStop;
      ++(stopped ? counts_.finished_stop : counts_.finished_length);
    }
  }
}

void Driver::fail(std::int64_t index, const std::string& custom_id, const RecordFault& fault) {
  journal_->append(index, writer_->error_line(custom_id, fault));
  ++counts_.errors;
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
