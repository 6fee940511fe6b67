#pragma once
// Which images of a prompt each of its tokens sees.
//
// Image tokens at adjacent positions form a group. An image token sees its own image and the
// earlier ones of its group; text sees all images of the group before it. The last group is seen by
// everything that is generated. (Llama 3.2 Vision, Meta's masks; that the last of several groups
// stays visible is the rule of the later implementations.)

#include <cstdint>
#include <span>
#include <vector>

#include "caravan/core/partition.h"

namespace caravan::engine {

class ImageVisibility {
 public:
  struct Group {
    Range images;
    Range positions;  // that see images of the group; the last group's end is the largest number
  };

  ImageVisibility() = default;
  ImageVisibility(std::span<const std::int32_t> prompt, std::int64_t image_token_id);

  std::int64_t num_images() const { return static_cast<std::int64_t>(markers_.size()); }
  const std::vector<Group>& groups() const { return groups_; }
  /// Position of the image token of an image.
  std::int64_t marker(std::int64_t image) const {
    return markers_[static_cast<std::size_t>(image)];
  }
  /// Images whose image tokens are among `positions`.
  Range images_at(Range positions) const;
  /// The group whose images `position` sees; groups().size() before the first image token.
  std::size_t group_at(std::int64_t position) const;

  /// Consecutive positions that see the same images.
  struct Span {
    std::int64_t end = 0;  // of the positions; the largest number at the end
    Range images;          // may be empty
  };
  /// The one that holds `position`.
  Span span_at(std::int64_t position) const;

 private:
  std::vector<std::int64_t> markers_;
  std::vector<Group> groups_;
};

}  // namespace caravan::engine
