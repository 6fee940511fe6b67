#include "caravan/engine/image_visibility.h"

#include <algorithm>
#include <limits>

namespace caravan::engine {
namespace {

constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();

}  // namespace

ImageVisibility::ImageVisibility(std::span<const std::int32_t> prompt,
                                 std::int64_t image_token_id) {
  for (std::int64_t position = 0; position < std::ssize(prompt); ++position) {
    if (prompt[static_cast<std::size_t>(position)] != image_token_id) continue;
    const std::int64_t image = num_images();
    if (markers_.empty() || markers_.back() + 1 < position) {
      if (!groups_.empty()) groups_.back().positions.end = position;
      groups_.push_back({{image, image}, {position, kForever}});
    }
    ++groups_.back().images.end;
    markers_.push_back(position);
  }
}

Range ImageVisibility::images_at(Range positions) const {
  const auto first = std::lower_bound(markers_.begin(), markers_.end(), positions.begin);
  const auto last = std::lower_bound(first, markers_.end(), positions.end);
  return {first - markers_.begin(), last - markers_.begin()};
}

std::size_t ImageVisibility::group_at(std::int64_t position) const {
  const auto found = std::find_if(groups_.begin(), groups_.end(), [&](const Group& group) {
    return group.positions.contains(position);
  });
  return static_cast<std::size_t>(found - groups_.begin());
}

ImageVisibility::Span ImageVisibility::span_at(std::int64_t position) const {
  const std::size_t index = group_at(position);
  if (index == groups_.size()) return {markers_.empty() ? kForever : markers_.front(), {}};
  const Group& group = groups_[index];
  const std::int64_t seen = position - group.positions.begin + 1;
  if (seen >= group.images.size()) return {group.positions.end, group.images};
  return {position + 1, {group.images.begin, group.images.begin + seen}};
}

}  // namespace caravan::engine
