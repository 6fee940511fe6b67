#include "caravan/engine/image_schedule.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"

namespace caravan::engine {
namespace {

using Group = ImageVisibility::Group;

std::span<const PromptImage> images_of(const Sequence& sequence, const Group& group) {
  return std::span(sequence.request->images)
      .subspan(static_cast<std::size_t>(group.images.begin),
               static_cast<std::size_t>(group.images.size()));
}

/// The group behind those that the sequence holds, or null.
const Group* next_group(const Sequence& sequence) {
  const std::vector<Group>& groups = sequence.images->groups();
  const auto next = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
    return group.images.begin >= sequence.held_end();
  });
  return next == groups.end() ? nullptr : &*next;
}

}  // namespace

void ImageSchedule::begin_step(std::span<Sequence* const> running) {
  if (store_.blocks().num_blocks() == 0) return;
  somebody_waits_ = false;
  for (Sequence* sequence : running) release_passed(*sequence);
  for (std::size_t i = 0; i < running.size(); ++i) {
    if (!take_needed(running, i)) somebody_waits_ = true;
  }
  if (somebody_waits_) return;
  for (Sequence* sequence : running) {
    if (sequence->images == nullptr) continue;
    // One group ahead: with more, one text of many images would keep all others waiting.
    const Group* next = next_group(*sequence);
    const bool has_one_ahead =
        !sequence->held_images.empty() &&
        sequence->images->marker(sequence->held_end() - 1) >= sequence->computed;
    if (next != nullptr && !has_one_ahead) static_cast<void>(take_next(*sequence));
  }
}

void ImageSchedule::release_until(Sequence& sequence, std::int64_t image) {
  const std::int64_t count = std::min(image, sequence.held_end()) - sequence.held_begin;
  for (std::int64_t i = 0; i < count; ++i) {
    store_.release(*sequence.held_images[static_cast<std::size_t>(i)]);
  }
  if (count > 0) {
    sequence.held_images.erase(sequence.held_images.begin(), sequence.held_images.begin() + count);
  }
  sequence.held_begin = image;
}

void ImageSchedule::release_passed(Sequence& sequence) {
  if (sequence.images == nullptr) return;
  const std::vector<Group>& groups = sequence.images->groups();
  const std::size_t current = sequence.images->group_at(sequence.computed);
  if (current == groups.size()) return;
  const std::int64_t first = groups[current].images.begin;
  if (first > sequence.held_begin) release_until(sequence, first);
}

void ImageSchedule::release(Sequence& sequence) {
  if (sequence.images == nullptr) return;
  release_until(sequence, sequence.held_end());
  sequence.held_begin = 0;
}

bool ImageSchedule::take_next(Sequence& sequence) {
  const Group* group = next_group(sequence);
  if (group == nullptr || group->positions.begin >= sequence.known()) return true;
  return store_.acquire(images_of(sequence, *group), sequence.held_images);
}

bool ImageSchedule::take_needed(std::span<Sequence* const> running, std::size_t index) {
  Sequence& sequence = *running[index];
  if (sequence.images == nullptr || sequence.remaining() == 0) return true;
  const Group* group = next_group(sequence);
  if (group == nullptr || group->positions.begin > sequence.computed) return true;
  if (take_next(sequence)) return true;
  if (!could_fit(running.first(index), images_of(sequence, *group))) return false;
  for (std::size_t victim = running.size() - 1; victim > index; --victim) {
    if (running[victim]->held_images.empty()) continue;
    const std::int64_t first = running[victim]->held_begin;
    release_until(*running[victim], running[victim]->held_end());
    running[victim]->held_begin = first;
    ++num_put_backs_;
    if (take_next(sequence)) return true;
  }
  CARAVAN_ASSERT(false, "images that fit could not be taken: {} of {} image blocks are free",
                 store_.blocks().num_free(), store_.blocks().num_blocks());
  return false;
}

/// Whether `images` fit the pool beside those that `older` sequences hold.
bool ImageSchedule::could_fit(std::span<Sequence* const> older,
                              std::span<const PromptImage> images) const {
  std::set<std::string_view> counted;
  std::int64_t blocks = 0;
  for (const Sequence* sequence : older) {
    for (const StoredImage* image : sequence->held_images) {
      if (counted.insert(image->content_hash).second) blocks += std::ssize(image->blocks);
    }
  }
  for (const PromptImage& image : images) {
    if (counted.insert(image.content_hash).second) blocks += store_.blocks_of(image);
  }
  return blocks <= store_.blocks().num_blocks();
}

bool ImageSchedule::admit(Sequence& sequence, std::int64_t begin,
                          std::span<Sequence* const> running) {
  if (sequence.images == nullptr) return true;
  if (somebody_waits_ && !running.empty()) return false;
  const std::size_t current = sequence.images->group_at(begin);
  const std::vector<Group>& groups = sequence.images->groups();
  sequence.held_begin = current < groups.size() ? groups[current].images.begin : 0;
  const bool taken = take_next(sequence);
  if (!taken) sequence.held_begin = 0;
  CARAVAN_ASSERT(taken || !running.empty(), "{} image blocks cannot hold the images of a prompt",
                 store_.blocks().num_blocks());
  return taken;
}

void ImageSchedule::share(const Sequence& parent, Sequence& child) {
  if (parent.images == nullptr) return;
  child.held_begin = parent.held_begin;
  child.held_images = parent.held_images;
  for (StoredImage* image : child.held_images) store_.share(*image);
}

double ImageSchedule::add_work(std::span<Sequence* const> running, double max_rows,
                               model::StepPlan& plan) {
  double rows = 0;
  // To the end of the image; false if the budget ends before.
  const auto encode = [&](StoredImage& image) {
    while (!image.stored()) {
      const bool fits = rows + store_.next_unit_rows(image) <= max_rows;
      if (!fits && !plan.image_work.empty()) return false;
      rows += store_.encode(image, max_rows - rows, plan);
    }
    return true;
  };
  if (store_.encoding() != nullptr && !encode(*store_.encoding())) return rows;
  for (std::size_t i = 0; i < running.size() && store_.num_unencoded() > 0; ++i) {
    for (StoredImage* image : running[i]->held_images) {
      if (!encode(*image)) return rows;
    }
  }
  return rows;
}

std::int64_t ImageSchedule::computable_end(const Sequence& sequence) const {
  if (sequence.images == nullptr) return sequence.known();
  std::int64_t image = sequence.held_begin;
  for (const StoredImage* held : sequence.held_images) {
    if (!held->stored()) break;
    ++image;
  }
  return image == sequence.images->num_images()
             ? sequence.known()
             : std::min(sequence.known(), sequence.images->marker(image));
}

void ImageSchedule::add_rows(const Sequence& sequence, Range positions, std::int32_t row,
                             model::StepPlan& plan) const {
  if (sequence.images == nullptr) return;
  // The rows of a group see its first image, its first two, ...: one table of images serves all of
  // them, or a plan would grow with the square of the images that stand side by side.
  model::StepPlan::ImageRows rows;
  std::int64_t first_image = -1;
  while (!positions.empty()) {
    const ImageVisibility::Span span = sequence.images->span_at(positions.begin);
    const std::int64_t end = std::min(span.end, positions.end);
    const auto count = checked_cast<std::int32_t>(end - positions.begin);
    if (!span.images.empty()) {
      if (span.images.begin != first_image) {
        first_image = span.images.begin;
        rows = {};
        rows.image_begin = checked_cast<std::int32_t>(plan.seen_tokens.size());
        rows.block_begin = checked_cast<std::int32_t>(plan.seen_blocks.size());
      }
      for (; rows.image_count < span.images.size(); ++rows.image_count) {
        const StoredImage& seen = *sequence.held_images[static_cast<std::size_t>(
            first_image + rows.image_count - sequence.held_begin)];
        plan.seen_tokens.push_back(checked_cast<std::int32_t>(seen.tokens));
        plan.seen_blocks.insert(plan.seen_blocks.end(), seen.blocks.begin(), seen.blocks.end());
      }
      rows.row_begin = row;
      rows.row_count = count;
      rows.block_count = checked_cast<std::int32_t>(plan.seen_blocks.size()) - rows.block_begin;
      plan.image_rows.push_back(rows);
    }
    row += count;
    positions.begin = end;
  }
}

}  // namespace caravan::engine
