#pragma once
// What one step computes: plain data made by the scheduler on the group's leader and broadcast to
// its ranks.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace caravan::model {

struct StepPlan {
  enum class Action : std::int32_t { kForward = 0, kStop = 1 };

  /// Consecutive rows of one sequence.
  struct Segment {
    std::int32_t row_begin = 0;
    std::int32_t row_count = 0;
    std::int32_t position_begin = 0;
    std::int32_t block_begin = 0;  // into `blocks`
    std::int32_t block_count = 0;
    bool operator==(const Segment&) const = default;
  };
  struct BlockCopy {
    std::int32_t source = 0;
    std::int32_t target = 0;
    bool operator==(const BlockCopy&) const = default;
  };

  /// Work on an image (VisionEncoder's units). The encoder has one image at a time: an image's
  /// units come in order, over one step or several, and no other's between them.
  struct ImageWork {
    std::int32_t unit_begin = 0;
    std::int32_t unit_count = 0;
    std::int32_t tiles_down = 0;
    std::int32_t tiles_across = 0;
    std::int32_t pixel_begin = 0;  // into `pixels`: [tiles][3][T][T] bytes with unit 0, else none
    std::int32_t pixel_count = 0;
    std::int32_t block_begin = 0;  // into `image_blocks`: the image's, all of them
    std::int32_t block_count = 0;
    bool operator==(const ImageWork&) const = default;
  };
  /// Consecutive rows that see the same images. Rows in none see no image: the layers that read
  /// images leave them as they are. Several may name the same images and blocks.
  struct ImageRows {
    std::int32_t row_begin = 0;
    std::int32_t row_count = 0;
    std::int32_t image_begin = 0;  // into `seen_tokens`
    std::int32_t image_count = 0;
    std::int32_t block_begin = 0;  // into `seen_blocks`: ceil(tokens / 16) for each image
    std::int32_t block_count = 0;
    bool operator==(const ImageRows&) const = default;
  };

  Action action = Action::kForward;
  std::int64_t number = 0;                // consecutive; ranks check it
  std::vector<std::int32_t> tokens;       // [N]
  std::vector<std::int32_t> positions;    // [N]
  std::vector<Segment> segments;          // rows in order, together all N
  std::vector<std::int32_t> blocks;       // block tables of all segments
  std::vector<BlockCopy> block_copies;    // done before the forward pass
  std::vector<std::int32_t> argmax_rows;  // rows of which only the best token is needed
  std::vector<std::int32_t> logit_rows;   // rows whose logits the leader needs whole
  // Of models that read images; a step may have image work and no tokens.
  std::vector<ImageWork> image_work;  // in order, before the forward pass
  std::vector<std::uint8_t> pixels;
  std::vector<std::int32_t> image_blocks;
  std::vector<ImageRows> image_rows;      // in order
  std::vector<std::int32_t> seen_tokens;  // tokens of the images that rows see
  std::vector<std::int32_t> seen_blocks;  // block tables of those images
  bool operator==(const StepPlan&) const = default;

  /// Flat bytes for the broadcast, and back. `bytes` comes from a peer of the same build.
  std::vector<std::byte> serialize() const;
  static StepPlan deserialize(std::span<const std::byte> bytes);
  /// The same, into what the caller has: no memory is taken once it has grown.
  void serialize_to(std::vector<std::byte>& bytes) const;
  void deserialize_from(std::span<const std::byte> bytes);
};

}  // namespace caravan::model
