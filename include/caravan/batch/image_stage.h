#pragma once
// Records whose images are being prepared, ahead of the step that needs them and within a bound of
// bytes. Records of text alone pass them by.
//
// Leaves out: decoding and its threads (image/pipeline.h), what was checked before
// (image_catalog.h).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "caravan/batch/image_catalog.h"
#include "caravan/batch/prompt_builder.h"
#include "caravan/batch/record.h"
#include "caravan/engine/request.h"
#include "caravan/image/pipeline.h"

namespace caravan::batch {

using PreparedImages = std::vector<std::shared_ptr<const image::PreparedImage>>;

/// A record before the engine has it.
struct StagedRecord {
  std::int64_t index = 0;
  Record record;
  std::vector<TokenizedPrompt> prompts;
  PreparedImages images;                // one for each of the record's
  std::vector<std::int64_t> next_uses;  // of each image (engine::PromptImage)
  std::optional<RecordFault> fault;     // of an image that cannot be decoded; then no images
};

struct ImageStageOptions {
  std::int64_t max_records = 64;  // that wait here
  /// Prepared images that wait here or are in use by the engine; one record may always go on.
  std::int64_t max_bytes = std::int64_t{1} << 30;
  /// Records that need not run, so that images are not kept for them. Empty: all must run.
  std::function<bool(std::int64_t index)> is_done;
};

class ImageStage {
 public:
  /// References outlive this object. Nobody else submits to the pipeline.
  ImageStage(image::ImagePipeline& pipeline, const ImageCatalog& catalog,
             const ImageStageOptions& options);
  ~ImageStage();
  ImageStage(const ImageStage&) = delete;
  ImageStage& operator=(const ImageStage&) = delete;

  bool empty() const { return waiting_.empty(); }
  /// Whether another record may be added.
  bool has_room() const;
  /// @pre the catalog found no fault in the record's images; has_room().
  void add(StagedRecord record);

  /// The oldest record that is complete, if there is one; does not wait.
  /// @throws IoError if an image is not what it was when it was checked.
  std::optional<StagedRecord> next();
  /// Waits until the oldest record has got one more image. @pre !empty(), and all images of records
  /// that were given out are released. @throws as next().
  void wait();

  /// Images that next() gave out are no longer used.
  void release(const PreparedImages& images);

 private:
  struct Waiting;
  void submit();
  void submit(Waiting& waiting);
  bool may_submit(const Waiting& waiting) const;
  void take(Waiting& waiting, std::size_t image, image::ImageOutcome outcome);
  void give_up(Waiting& waiting, RecordFault fault);
  void drop(const std::shared_ptr<const image::PreparedImage>& image);

  image::ImagePipeline* pipeline_;
  const ImageCatalog* catalog_;
  ImageStageOptions options_;
  std::list<Waiting> waiting_;      // oldest first
  std::int64_t waiting_bytes_ = 0;  // of addresses that are not submitted yet
  std::int64_t in_work_ = 0;        // submitted and not taken
  std::int64_t given_out_ = 0;      // images
  std::unordered_map<const image::PreparedImage*, std::int64_t> holders_;
  std::int64_t held_bytes_ = 0;
};

/// As the engine takes them. @pre no fault.
std::vector<engine::PromptImage> prompt_images(const StagedRecord& staged);

}  // namespace caravan::batch
