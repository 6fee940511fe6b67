#include "leader_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "caravan/app/commands.h"
#include "caravan/app/stop_signals.h"
#include "caravan/app/version.h"
#include "caravan/batch/image_stage.h"
#include "caravan/batch/manifest.h"
#include "caravan/batch/response_writer.h"
#include "caravan/core/clock.h"
#include "caravan/core/error.h"
#include "caravan/core/log.h"
#include "caravan/image/pipeline.h"
#include "caravan/io/atomic_file.h"

namespace caravan::app {
namespace {

constexpr int kPromptThreads = 8;  // as those of a run, for --prompt

// Tokens per second, "-" where there is nothing to divide.
std::string rate(std::int64_t tokens, double seconds) {
  return tokens > 0 && seconds > 0 ? fmt::format("{:.0f}", static_cast<double>(tokens) / seconds)
                                   : "-";
}

void log_summary(const batch::RunCounts& counts, const engine::EngineStatistics& engine,
                 const batch::Journal& journal) {
  log::info("summary: {} records done ({} from an earlier run), {} with errors", journal.num_done(),
            journal.num_found(), journal.num_errors());
  log::info("summary: this run answered {} in {:.1f} s; choices ended by stop {}, by length {}",
            counts.answered, counts.seconds, counts.finished_stop, counts.finished_length);
  log::info("summary: {} prompt tokens, {} new tokens, {} new tokens/s over all",
            counts.prompt_tokens, counts.completion_tokens,
            rate(counts.completion_tokens, counts.seconds));
  if (engine.reused_tokens > 0) {
    log::info("summary: {} tokens of prompts and repeats were found in the KV cache",
              engine.reused_tokens);
  }
  if (engine.drafted_tokens > 0) {
    log::info("summary: {} tokens were guessed ahead, {} of them came true", engine.drafted_tokens,
              engine.accepted_tokens);
  }
  log::info(
      "summary: prefill {} tokens in {:.1f} s ({} tokens/s), decode {} tokens in {:.1f} s "
      "({} tokens/s), {} steps, {} put back",
      engine.prompt_tokens, engine.prefill_seconds,
      rate(engine.prompt_tokens, engine.prefill_seconds), engine.decode_tokens,
      engine.decode_seconds, rate(engine.decode_tokens, engine.decode_seconds), engine.steps,
      engine.put_backs);
}

void log_images(const batch::RunCounts& counts, const engine::EngineStatistics& engine,
                const batch::WorkloadSummary& workload) {
  if (workload.images == 0) return;
  log::info(
      "summary: {} images in answered records ({} distinct in the input); {} encoded in {:.1f} s, "
      "{} times found encoded; {} records with an image that could not be decoded",
      counts.images, workload.distinct_images, engine.images_encoded, engine.encoder_seconds,
      engine.images_reused, counts.image_errors);
  log::info("summary: nothing could run for want of a prepared image {} times, {:.1f} s",
            counts.image_waits, counts.image_wait_seconds);
}

batch::Manifest make_manifest(const JobOptions& options, PreparedRun& prepared,
                              const batch::Journal& journal, const RunFacts& facts) {
  const checkpoint::ModelDescription& description = prepared.model().file.description();
  batch::Manifest manifest;
  manifest.versions = version_entries();
  manifest.model = {{"path", options.model},
                    {"name", description.name},
                    {"content_hash", description.content_hash},
                    {"dtype", std::string(dtype_name(description.dtype))},
                    {"source", description.source},
                    {"created_by", description.created_by}};
  manifest.configuration = facts.configuration;
  manifest.ranks = facts.placement.ranks;
  manifest.device = facts.placement.device;
  manifest.kernels = facts.placement.kernels;
  manifest.compute = ops::compute_name(options.compute);
  manifest.kv_dtype = dtype_name(options.kv_dtype);
  manifest.threads_per_rank = facts.placement.threads;
  manifest.inputs = prepared.workload().input_paths();
  manifest.output = options.output;
  manifest.fingerprint = prepared.fingerprint();
  manifest.workload = prepared.workload().summary();
  manifest.kept_records = journal.num_found();
  manifest.done_records = journal.num_done();
  manifest.error_records = journal.num_errors();
  manifest.phase_seconds = facts.phase_seconds;
  manifest.started = facts.started;
  manifest.ended = utc_timestamp();
  return manifest;
}

void write_manifest(const std::string& path, const batch::Manifest& manifest) {
  io::remove_temporary_files(path);  // the lock is ours
  io::AtomicFile file(path);
  file.write(batch::manifest_json(manifest));
  file.commit();
}

// Threads and stage that prepare the images of a run, if it has any.
class ImagePreparation {
 public:
  ImagePreparation(const PreparedRun& prepared, batch::ImageStageOptions options, int threads) {
    const batch::ImageCatalog* catalog = prepared.images();
    if (catalog == nullptr || catalog->num_distinct() == 0) return;
    image::PipelineOptions pipeline;
    pipeline.num_threads = std::clamp(threads / kThreadShare, 1, kMostThreads);
    pipeline_.emplace(catalog->open_sources(), catalog->options().decoding,
                      catalog->options().tiling, pipeline);
    options.max_bytes = kMaxPreparedBytes;
    stage_.emplace(*pipeline_, *catalog, options);
  }
  batch::ImageStage* stage() { return stage_ ? &*stage_ : nullptr; }

 private:
  // Preparing an image takes a small part of the time of its prompt: few threads keep up with many.
  static constexpr int kThreadShare = 8;
  static constexpr int kMostThreads = 8;

  std::optional<image::ImagePipeline> pipeline_;
  std::optional<batch::ImageStage> stage_;
};

// The prompt's images, in order.
std::vector<engine::PromptImage> prepare_prompt_images(const PreparedRun& prepared) {
  ImagePreparation images(prepared, {}, kPromptThreads);
  if (images.stage() == nullptr) return {};
  batch::StagedRecord staged;
  staged.record = prepared.prompt_record();
  images.stage()->add(std::move(staged));
  std::optional<batch::StagedRecord> ready;
  while (!(ready = images.stage()->next())) images.stage()->wait();
  CARAVAN_CHECK(!ready->fault, InputError, "--image: {}", log::escape_line(ready->fault->message));
  return batch::prompt_images(*ready);
}

// Drives the engine; the counts are valid also when the journal fails on the way.
Outcome drive(const JobOptions& options, PreparedRun& prepared, BatchOutput& output,
              engine::Engine& engine, batch::RunCounts& counts, int threads) {
  const batch::ResponseWriter writer(*prepared.model().tokenizer, prepared.model().name,
                                     prepared.model().file.description().content_hash);
  batch::Journal& journal = output.journal();
  batch::ImageStageOptions stage;
  stage.max_records = options.max_sequences;
  stage.is_done = [&journal](std::int64_t index) { return journal.has(index); };
  ImagePreparation images(prepared, stage, threads);
  batch::Driver driver(prepared.workload(), prepared.builder(), writer, engine, journal,
                       images.stage());
  batch::DriverOptions driver_options;
  driver_options.queue_ahead = options.max_sequences;
  driver_options.kv_blocks = prepared.memory().limits.kv_blocks;
  driver_options.log_seconds = options.log_interval;
  driver_options.stop_requested = [] { return stop_signal() != 0; };
  driver_options.keep_alive = [&output] { output.keep_alive(); };
  const batch::RunEnd end = driver.run(driver_options);
  counts = driver.counts();
  if (end == batch::RunEnd::kFinished) return {};
  return {
      ExitCode::kTemporary,
      fmt::format("stopped by {}: {} of {} records are done and kept in {}; run the same command "
                  "again to continue",
                  signal_name(stop_signal()), journal.num_done(), journal.num_records(),
                  prepared.names()->journal)};
}

Outcome complete(const JobOptions& options, PreparedRun& prepared, BatchOutput& output) {
  const Stopwatch watch;
  batch::Journal& journal = output.journal();
  const std::int64_t errors = journal.num_errors();
  journal.finish(
      options.output, [&output] { output.keep_alive(); },
      options.overwrite ? io::ExistingTarget::kReplace : io::ExistingTarget::kKeep);
  log::info("output: {} lines in {}, written in {:.2f} s", journal.num_records(),
            prepared.names()->output, watch.seconds());
  if (options.fail_on_error && errors > 0) {
    return {ExitCode::kRecordErrors,
            fmt::format("finished; {} records have error lines (--fail-on-error)", errors)};
  }
  return {ExitCode::kOk, "finished"};
}

// The output is looked at again under the lock: the job that held it may have finished meanwhile.
batch::Journal open_journal(PreparedRun& prepared, batch::ExistingOutput existing) {
  batch::check_output(*prepared.names(), prepared.workload().input_paths(), {}, existing);
  batch::Journal journal(prepared.names()->journal, prepared.fingerprint(),
                         prepared.workload().size());
  // Where all is done, finish() looks whether it is the output of this run.
  if (journal.num_done() < journal.num_records()) {
    batch::require_no_output(*prepared.names(), existing);
  }
  return journal;
}

}  // namespace

BatchOutput::BatchOutput(PreparedRun& prepared, const batch::LockOwner& owner,
                         batch::ExistingOutput existing)
    : lock_(prepared.names()->lock, owner), journal_(open_journal(prepared, existing)) {
  if (journal_.num_dropped() > 0) {
    log::warning("{}: {} damaged lines are dropped, their records run again",
                 prepared.names()->journal, journal_.num_dropped());
  }
  if (journal_.num_found() > 0) {
    log::info("continuing: {} of {} records are in {}", journal_.num_found(),
              journal_.num_records(), prepared.names()->journal);
  }
  batch::check_free_space(*prepared.names(), journal_.num_records() - journal_.num_done(),
                          journal_.num_records());
}

void BatchOutput::keep_alive() {
  constexpr double kSecondsBetween = 30;
  if (since_refresh_.seconds() < kSecondsBetween) return;
  lock_.refresh();
  since_refresh_ = Stopwatch();
}

void BatchOutput::remove() {
  lock_.release();
  journal_.remove();
}

Outcome run_records(const JobOptions& options, PreparedRun& prepared, BatchOutput& output,
                    engine::Engine* engine, RunFacts& facts) {
  batch::Journal& journal = output.journal();
  batch::RunCounts counts;
  Outcome outcome;
  try {
    if (engine != nullptr)
      outcome = drive(options, prepared, output, *engine, counts, facts.placement.threads);
    facts.phase_seconds["work"] = counts.seconds;
    const engine::EngineStatistics statistics =
        engine != nullptr ? engine->statistics() : engine::EngineStatistics{};
    log_summary(counts, statistics, journal);
    log_images(counts, statistics, prepared.workload().summary());
    const bool all_answered = outcome.code == ExitCode::kOk;
    if (all_answered) outcome = complete(options, prepared, output);
    batch::Manifest manifest = make_manifest(options, prepared, journal, facts);
    manifest.counts = counts;
    manifest.engine = statistics;
    manifest.exit_code = static_cast<int>(outcome.code);
    manifest.exit_reason = outcome.reason;
    write_manifest(prepared.names()->manifest, manifest);
    // The last of all: whatever ends this run before, the same command finishes it.
    if (all_answered) output.remove();
  } catch (const IoError& error) {
    // Thrown by our own files only, between steps: the followers can still be told to stop.
    return {error.code(), error.what()};
  } catch (const CannotCreateError& error) {
    return {error.code(), error.what()};
  } catch (const ConfigError& error) {
    // Of an image for which there is no memory; also between steps.
    return {error.code(), error.what()};
  }
  return outcome;
}

Outcome run_prompt(PreparedRun& prepared, engine::Engine& engine) {
  const batch::Record& record = prepared.prompt_record();
  std::vector<engine::PromptImage> images;
  try {
    images = prepare_prompt_images(prepared);
  } catch (const InputError& error) {
    return {error.code(), error.what()};
  } catch (const IoError& error) {
    return {error.code(), error.what()};
  } catch (const ConfigError& error) {
    return {error.code(), error.what()};
  }
  std::vector<engine::Request> requests =
      batch::engine_requests(record, prepared.prompt_ids(), 0, std::move(images));
  engine.submit(std::move(requests.front()));
  std::vector<engine::Answer> answers;
  while (answers.empty()) {
    if (stop_signal() != 0) {
      return {ExitCode::kTemporary, fmt::format("stopped by {}", signal_name(stop_signal()))};
    }
    answers = engine.step();
  }
  const engine::Answer& answer = answers.front();
  // Of the weights or of the options: a run of records gives such a record an error line.
  if (answer.error) return {ExitCode::kConfig, *answer.error};
  const engine::EngineStatistics statistics = engine.statistics();
  log::info(
      "{} prompt tokens, {} new tokens; prefill {} tokens/s, decode {} tokens/s; "
      "ended by {}",
      prepared.prompt_ids().front().ids.size(), answer.choices.front().token_ids.size(),
      rate(statistics.prompt_tokens, statistics.prefill_seconds),
      rate(statistics.decode_tokens, statistics.decode_seconds),
      answer.choices.front().finish_reason == engine::FinishReason::kStop ? "stop" : "length");
  try {
    print_result(answer.choices.front().text + "\n");
  } catch (const IoError& error) {
    return {error.code(), error.what()};
  }
  return {ExitCode::kOk, "finished"};
}

}  // namespace caravan::app
