#pragma once
// The images whose keys and values are in the pool of image blocks, or will be: found by content,
// counted by who needs them, encoded in units.
//
// An image that nobody needs any more stays until its blocks are wanted. Those go first that no
// later request shows, the one unused for longest before others; then the one that is shown again
// last: fewer images are encoded twice than by any other choice. Plain bookkeeping on the leader.
// Leaves out: which sequence may take blocks from which (image_schedule.h), the memory itself
// (model/decoder.h).

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "caravan/engine/block_allocator.h"
#include "caravan/engine/image_cost.h"
#include "caravan/engine/request.h"
#include "caravan/model/step_plan.h"

namespace caravan::engine {

struct ImageStoreLimits {
  std::int64_t num_blocks = 0;  // of block_tokens image tokens each
  std::int64_t block_tokens = 16;
  std::array<ImageCost, model::kMaxTiles> costs;  // of images of 1, 2, ... tiles
};

struct StoredImage {
  std::string content_hash;
  model::TileGrid grid;
  std::int64_t tokens = 0;
  std::int64_t num_units = 0;
  std::int64_t units_done = 0;  // planned ones included
  std::vector<std::int32_t> blocks;
  std::shared_ptr<const std::vector<std::uint8_t>> pixels;  // until encoding begins
  std::int64_t references = 0;
  std::uint64_t released = 0;  // when nobody needed it any more, counted in releases
  std::int64_t next_use = 0;   // the latest that a prompt said (PromptImage)

  /// Rows of the step that is being planned, and of later ones, can see it.
  bool stored() const { return units_done == num_units; }
};

class ImageStore {
 public:
  explicit ImageStore(const ImageStoreLimits& limits);

  /// Blocks that an image takes.
  std::int64_t blocks_of(const PromptImage& image) const;

  /// Appends all of `images` to `held`, one reference each, in order; false if their blocks are not
  /// to be had without images that somebody needs, and then nothing changes.
  [[nodiscard]] bool acquire(std::span<const PromptImage> images, std::vector<StoredImage*>& held);
  /// One more owner of an image that has one.
  void share(StoredImage& image);
  /// One owner less. The pointer is dead for this owner.
  void release(StoredImage& image);

  /// The image whose encoding has begun and not ended, or null. The encoder works on one image at a
  /// time.
  StoredImage* encoding() const { return encoding_; }
  /// Images that are not encoded, or not to the end.
  std::int64_t num_unencoded() const { return num_unencoded_; }
  /// What the next unit of an image costs, in rows of text. @pre not stored yet.
  double next_unit_rows(const StoredImage& image) const;
  /// Puts the next units of an image into the plan: one at least, and more as long as together they
  /// cost at most as much as `max_rows` rows of text. Returns what they cost.
  /// @pre encoding() is null or `image`, which is not stored yet.
  double encode(StoredImage& image, double max_rows, model::StepPlan& plan);

  const BlockAllocator& blocks() const { return allocator_; }
  std::int64_t num_images() const { return std::ssize(images_); }
  /// Blocks of images that nobody needs.
  std::int64_t num_unreferenced_blocks() const { return unreferenced_blocks_; }
  std::int64_t num_encoded() const { return num_encoded_; }
  std::int64_t num_reused() const { return num_reused_; }

 private:
  /// The smallest goes first: how far before "never" it is shown again, and its `released`.
  using KeepOrder = std::pair<std::int64_t, std::uint64_t>;
  static KeepOrder keep_order(const StoredImage& image);

  const ImageCost& cost_of(const model::TileGrid& grid) const;
  bool room_for(std::span<const PromptImage> images) const;
  void make_room(std::int64_t num_blocks);
  StoredImage* find(const PromptImage& image);
  StoredImage& create(const PromptImage& image);
  void add_reference(StoredImage& image);
  void drop(StoredImage& image);

  ImageStoreLimits limits_;
  BlockAllocator allocator_;
  std::map<std::string, std::unique_ptr<StoredImage>, std::less<>> images_;  // by content hash
  std::map<KeepOrder, StoredImage*> unreferenced_;
  std::int64_t unreferenced_blocks_ = 0;
  StoredImage* encoding_ = nullptr;
  std::uint64_t num_releases_ = 0;
  std::int64_t num_unencoded_ = 0;
  std::int64_t num_encoded_ = 0;
  std::int64_t num_reused_ = 0;
};

}  // namespace caravan::engine
