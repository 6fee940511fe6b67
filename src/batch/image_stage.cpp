#include "caravan/batch/image_stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "caravan/core/error.h"

namespace caravan::batch {
namespace {

// Addresses of waiting records: data: URIs hold whole images.
constexpr std::int64_t kMaxWaitingBytes = std::int64_t{64} << 20;

}  // namespace

struct ImageStage::Waiting {
  struct Image {
    ImageFacts facts;
    std::string shown;                                   // its address, for messages
    std::optional<image::ImagePipeline::Ticket> ticket;  // while it is in work
  };
  StagedRecord staged;
  std::vector<Image> images;
  std::size_t num_submitted = 0;
  std::size_t num_taken = 0;

  bool complete() const { return staged.fault || num_taken == images.size(); }
  bool all_submitted() const { return staged.fault || num_submitted == images.size(); }
};

ImageStage::ImageStage(image::ImagePipeline& pipeline, const ImageCatalog& catalog,
                       const ImageStageOptions& options)
    : pipeline_(&pipeline), catalog_(&catalog), options_(options) {}

ImageStage::~ImageStage() = default;

bool ImageStage::has_room() const {
  return waiting_.empty() ||
         (std::ssize(waiting_) < options_.max_records && waiting_bytes_ < kMaxWaitingBytes);
}

void ImageStage::add(StagedRecord record) {
  Waiting waiting;
  for (const RecordImage& image : record.record.images) {
    const ImageFacts& facts = catalog_->facts(record.record.image_source, image.url);
    waiting.images.push_back({facts, image::describe_source(image.url), {}});
    record.next_uses.push_back(catalog_->next_use(facts, record.index, options_.is_done));
    waiting_bytes_ += std::ssize(image.url);
  }
  record.images.resize(waiting.images.size());
  waiting.staged = std::move(record);
  waiting_.push_back(std::move(waiting));
  submit();
}

// In order, so that a record that waits for room waits for older ones alone.
void ImageStage::submit() {
  for (Waiting& waiting : waiting_) {
    submit(waiting);
    if (!waiting.all_submitted()) break;
  }
}

void ImageStage::submit(Waiting& waiting) {
  Record& record = waiting.staged.record;
  while (!waiting.all_submitted() && may_submit(waiting)) {
    std::string& url = record.images[waiting.num_submitted].url;
    const std::int64_t bytes = std::ssize(url);
    const auto ticket = pipeline_->try_submit(std::move(url), record.image_source);
    if (!ticket) return;
    url.clear();
    waiting_bytes_ -= bytes;
    waiting.images[waiting.num_submitted++].ticket = ticket;
    ++in_work_;
  }
}

bool ImageStage::may_submit(const Waiting& waiting) const {
  if (&waiting == &waiting_.front() && given_out_ == 0) return true;
  const std::int64_t most = catalog_->options().tiling.max_bytes();
  return held_bytes_ + (in_work_ + 1) * most <= options_.max_bytes;
}

std::optional<StagedRecord> ImageStage::next() {
  for (Waiting& waiting : waiting_) {
    for (std::size_t i = 0; i < waiting.num_submitted && !waiting.staged.fault; ++i) {
      if (!waiting.images[i].ticket) continue;
      if (auto outcome = pipeline_->try_take(*waiting.images[i].ticket)) {
        take(waiting, i, std::move(*outcome));
      }
    }
  }
  submit();
  const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                  [](const Waiting& waiting) { return waiting.complete(); });
  if (found == waiting_.end()) return std::nullopt;
  StagedRecord staged = std::move(found->staged);
  waiting_.erase(found);
  given_out_ += std::ssize(staged.images);
  return staged;
}

void ImageStage::wait() {
  submit();
  Waiting& oldest = waiting_.front();
  if (oldest.complete()) return;
  const auto image = std::find_if(oldest.images.begin(), oldest.images.end(),
                                  [](const Waiting::Image& each) { return each.ticket; });
  CARAVAN_ASSERT(image != oldest.images.end(), "nothing to wait for: {} of {} images are there",
                 oldest.num_taken, oldest.images.size());
  take(oldest, static_cast<std::size_t>(image - oldest.images.begin()),
       pipeline_->take(*image->ticket));
}

void ImageStage::take(Waiting& waiting, std::size_t index, image::ImageOutcome outcome) {
  Waiting::Image& image = waiting.images[index];
  image.ticket.reset();
  --in_work_;
  const std::string& id = waiting.staged.record.custom_id;
  CARAVAN_CHECK(
      !outcome.content_hash.empty(), IoError,
      "record \"{}\": image {} could be read when the input was checked and cannot be now: "
      "{}. Finished records are kept: put the image back and run the same command again",
      id, image.shown, outcome.error);
  CARAVAN_CHECK(image_key(outcome.content_hash) == image.facts.content, IoError,
                "record \"{}\": image {} has changed since the input was checked. Finished records "
                "are kept: put the image back as it was and run the same command again, or start "
                "anew with another --output",
                id, image.shown);
  if (!outcome.image) {
    give_up(waiting, {400, "invalid_image", fmt::format("image {}: {}", image.shown, outcome.error),
                      waiting.staged.record.images[index].param});
    return;
  }
  const image::TileLayout& layout = outcome.image->layout;
  CARAVAN_ASSERT(layout.rows == image.facts.grid.down && layout.columns == image.facts.grid.across,
                 "image {} has {} x {} tiles, its header promised {} x {}", image.shown,
                 layout.rows, layout.columns, image.facts.grid.down, image.facts.grid.across);
  if (++holders_[outcome.image.get()] == 1) held_bytes_ += outcome.image->bytes();
  waiting.staged.images[index] = std::move(outcome.image);
  ++waiting.num_taken;
}

void ImageStage::give_up(Waiting& waiting, RecordFault fault) {
  for (Waiting::Image& image : waiting.images) {
    if (!image.ticket) continue;
    pipeline_->discard(*image.ticket);
    image.ticket.reset();
    --in_work_;
  }
  for (const RecordImage& image : waiting.staged.record.images) {
    waiting_bytes_ -= std::ssize(image.url);  // of those that were not submitted
  }
  for (const auto& image : waiting.staged.images) drop(image);
  waiting.staged.images.clear();
  waiting.staged.fault = std::move(fault);
}

void ImageStage::drop(const std::shared_ptr<const image::PreparedImage>& image) {
  if (!image) return;
  const auto found = holders_.find(image.get());
  CARAVAN_ASSERT(found != holders_.end(), "an image that is not held was released");
  if (--found->second > 0) return;
  held_bytes_ -= image->bytes();
  holders_.erase(found);
}

void ImageStage::release(const PreparedImages& images) {
  for (const auto& image : images) drop(image);
  given_out_ -= std::ssize(images);
}

std::vector<engine::PromptImage> prompt_images(const StagedRecord& staged) {
  std::vector<engine::PromptImage> prompt;
  prompt.reserve(staged.images.size());
  for (std::size_t i = 0; i < staged.images.size(); ++i) {
    const auto& image = staged.images[i];
    prompt.push_back({image->content_hash,
                      {image->layout.rows, image->layout.columns},
                      std::shared_ptr<const std::vector<std::uint8_t>>(image, &image->tiles),
                      staged.next_uses[i]});
  }
  return prompt;
}

}  // namespace caravan::batch
