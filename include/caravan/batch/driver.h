#pragma once
// The loop of a batch run on the leader: records to the engine, answers to the journal, until all
// are done or someone asks to stop.
//
// Leaves out: validation (workload.h), the final output (journal.h), the ranks that follow
// (engine.h).

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "caravan/batch/image_stage.h"
#include "caravan/batch/journal.h"
#include "caravan/batch/progress.h"
#include "caravan/batch/prompt_builder.h"
#include "caravan/batch/response_writer.h"
#include "caravan/batch/workload.h"
#include "caravan/engine/engine.h"

namespace caravan::batch {

struct DriverOptions {
  /// Requests of each kind (of text alone, with images) handed to the engine before they can run.
  std::int64_t queue_ahead = 64;
  std::int64_t kv_blocks = 1;  // of the engine's pool, for progress lines
  double sync_seconds = 5;     // between syncs of the journal
  double log_seconds = 30;     // between progress lines
  std::function<bool()> stop_requested;
  std::function<void()> keep_alive;  // called at every sync
};

/// What this run did (records of an earlier run are not counted).
struct RunCounts {
  std::int64_t answered = 0;
  std::int64_t errors = 0;
  std::int64_t finished_stop = 0;  // choices
  std::int64_t finished_length = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::int64_t images = 0;        // of answered records, as they name them
  std::int64_t image_errors = 0;  // records with an image that could not be decoded
  std::int64_t image_waits = 0;   // times that nothing could run because images were not ready
  double image_wait_seconds = 0;
  double seconds = 0;
};

enum class RunEnd { kFinished, kStopped };

class Driver {
 public:
  /// All references outlive this object. @param images  null: no record has any.
  Driver(Workload& workload, const PromptBuilder& builder, const ResponseWriter& writer,
         engine::Engine& engine, Journal& journal, ImageStage* images = nullptr);

  /// Collective through the engine: followers are in Engine::follow. Does not stop them.
  /// @pre Workload::too_large() names no record for the engine's cache.
  /// @throws IoError when the journal cannot be written or the input has changed; then no step is
  /// under way.
  RunEnd run(const DriverOptions& options);

  const RunCounts& counts() const { return counts_; }

 private:
  struct Pending {
    std::int64_t index = 0;
    Record record;
    std::vector<TokenizedPrompt> prompts;
    std::vector<engine::Answer> answers;
    std::size_t missing = 0;
    PreparedImages images;
  };
  bool submit_texts(std::int64_t queue_ahead);
  bool submit_images(std::int64_t queue_ahead);
  std::optional<std::int64_t> next_record(std::int64_t& cursor, bool with_images) const;
  void submit_record(std::int64_t index);
  void submit_prepared(std::int64_t queue_ahead);
  void submit(StagedRecord staged);
  void wait_for_images();
  void take(engine::Answer answer);
  void finish(const Pending& pending);
  void fail(const WorkItem& item, const RecordFault& fault);
  void fail(std::int64_t index, const Record& record, const RecordFault& fault);
  ProgressFigures figures(const DriverOptions& options, double seconds) const;

  Workload* workload_;
  const PromptBuilder* builder_;
  const ResponseWriter* writer_;
  engine::Engine* engine_;
  Journal* journal_;
  ImageStage* images_;
  std::map<std::int64_t, Pending> pending_;  // by the id of its first request
  // Records of text alone run past those that wait for images, and are looked for on their own.
  std::int64_t next_text_ = 0;
  std::int64_t next_images_ = 0;
  std::int64_t next_request_ = 0;
  RunCounts counts_;
};

}  // namespace caravan::batch
