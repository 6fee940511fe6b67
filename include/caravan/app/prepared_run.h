#pragma once
// A run as the leader prepares it, before any weight is read: model header, output, whole input,
// memory. `plan` stops here; `run` goes on.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "caravan/app/job_options.h"
#include "caravan/app/memory_plan.h"
#include "caravan/app/model_front.h"
#include "caravan/app/option_table.h"
#include "caravan/batch/image_catalog.h"
#include "caravan/batch/journal.h"
#include "caravan/batch/output_files.h"
#include "caravan/batch/prompt_builder.h"
#include "caravan/batch/request_parser.h"
#include "caravan/batch/workload.h"
#include "caravan/core/faults.h"

namespace caravan::app {

class PreparedRun {
 public:
  /// Opens model, input and output as far as the options name them and reports all their faults
  /// together; then validates the records, whose faults wait for plan().
  /// @throws the Error of the first fault, with the texts of all of them.
  explicit PreparedRun(const JobOptions& options);
  PreparedRun(const PreparedRun&) = delete;
  PreparedRun& operator=(const PreparedRun&) = delete;

  /// Plans memory, once. What this object has is good for a run afterwards.
  /// @param free_bytes  of each rank.
  /// @throws the Error of the first fault, with the texts of all of them: of records, and of memory
  /// that does not suffice.
  void plan(const std::vector<std::int64_t>& free_bytes);

  ModelFront& model() { return *model_; }
  const batch::PromptBuilder& builder() const { return *builder_; }
  const batch::RequestParser& parser() const { return *parser_; }
  /// @pre plan().
  const MemoryPlan& memory() const { return memory_; }
  /// What memory() is planned for.
  const MemoryRequest& memory_request() const { return memory_request_; }
  /// With --input only.
  bool has_workload() const { return workload_.has_value(); }
  batch::Workload& workload() { return *workload_; }
  /// With --output only.
  const std::optional<batch::OutputNames>& names() const { return names_; }
  /// With --prompt only: its record and token ids.
  const batch::Record& prompt_record() const { return *prompt_record_; }
  /// Of models with vision: the images that records name, all checked.
  const batch::ImageCatalog* images() const { return images_ ? &*images_ : nullptr; }
  const std::vector<batch::TokenizedPrompt>& prompt_ids() const { return prompt_ids_; }

  batch::Fingerprint fingerprint() const;

 private:
  void open_parts();
  void open_images();
  void check_records();
  void build_prompt();
  void check_prompt_images();
  void request_records();
  void check_images();
  void check_capacity();
  bool fits_cache(const batch::TokenizedPrompt& prompt) const;

  JobOptions options_;
  std::optional<ModelFront> model_;
  std::optional<batch::OutputNames> names_;
  std::optional<batch::PromptFiles> files_;
  std::unique_ptr<batch::RequestParser> parser_;
  std::unique_ptr<batch::PromptBuilder> builder_;
  std::optional<batch::ImageCatalog> images_;
  batch::ImageBlocks prompt_blocks_;
  std::optional<batch::Workload> workload_;
  std::optional<batch::Record> prompt_record_;
  std::vector<batch::TokenizedPrompt> prompt_ids_;
  Faults faults_;  // that wait for plan()
  MemoryRequest memory_request_;
  MemoryPlan memory_;
};

/// Of a run whose records are not known (assume_records); free_bytes are still to be set.
MemoryRequest memory_request(const JobOptions& options, const model::LlamaConfig& config,
                             DType dtype);

/// @throws ConfigError where --compute needs other weights than the checkpoint's.
void check_compute(const JobOptions& options, DType dtype);

/// Contradictions between options of `run` or `plan`, found before MPI starts.
/// @throws UsageError listing them all.
void check_options(Command command, const JobOptions& options);

}  // namespace caravan::app
