#include "caravan/engine/image_store.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "caravan/core/partition.h"

namespace caravan::engine {

ImageStore::ImageStore(const ImageStoreLimits& limits)
    : limits_(limits), allocator_(limits.num_blocks) {}

const ImageCost& ImageStore::cost_of(const model::TileGrid& grid) const {
  const std::int64_t tiles = grid.num_tiles();
  CARAVAN_ASSERT(tiles >= 1 && tiles <= model::kMaxTiles, "an image of {} x {} tiles", grid.down,
                 grid.across);
  return limits_.costs[static_cast<std::size_t>(tiles - 1)];
}

std::int64_t ImageStore::blocks_of(const PromptImage& image) const {
  return ceil_div(cost_of(image.grid).tokens, limits_.block_tokens);
}

bool ImageStore::acquire(std::span<const PromptImage> images, std::vector<StoredImage*>& held) {
  if (!room_for(images)) return false;
  // What is there first, so that making room for the others does not drop it.
  const std::size_t first = held.size();
  std::int64_t missing = 0;
  std::set<std::string_view> absent;
  for (const PromptImage& image : images) {
    held.push_back(find(image));
    if (held.back() != nullptr) {
      add_reference(*held.back());
    } else if (absent.insert(image.content_hash).second) {
      missing += blocks_of(image);
    }
  }
  num_reused_ += std::ssize(images) - std::ssize(absent);
  make_room(missing);
  for (std::size_t i = 0; i < images.size(); ++i) {
    StoredImage*& place = held[first + i];
    if (place == nullptr) {
      place = find(images[i]);  // the second time in `images`
      if (place == nullptr) {
        place = &create(images[i]);
      } else {
        add_reference(*place);
      }
    }
    // Requests come nearly in order: the latest one knows what comes behind it.
    place->next_use = std::max(place->next_use, images[i].next_use);
  }
  return true;
}

bool ImageStore::room_for(std::span<const PromptImage> images) const {
  std::set<std::string_view> counted;
  std::int64_t missing = 0;
  std::int64_t available = allocator_.num_free() + unreferenced_blocks_;
  for (const PromptImage& image : images) {
    if (!counted.insert(image.content_hash).second) continue;
    const auto found = images_.find(image.content_hash);
    if (found == images_.end()) {
      missing += blocks_of(image);
    } else if (found->second->references == 0) {
      available -= std::ssize(found->second->blocks);
    }
  }
  return missing <= available;
}

void ImageStore::make_room(std::int64_t num_blocks) {
  while (allocator_.num_free() < num_blocks) {
    CARAVAN_ASSERT(!unreferenced_.empty(), "{} image blocks are wanted, {} of {} are free",
                   num_blocks, allocator_.num_free(), allocator_.num_blocks());
    StoredImage& least = *unreferenced_.begin()->second;
    unreferenced_.erase(unreferenced_.begin());
    unreferenced_blocks_ -= std::ssize(least.blocks);
    drop(least);
  }
}

StoredImage* ImageStore::find(const PromptImage& image) {
  const auto found = images_.find(image.content_hash);
  if (found == images_.end()) return nullptr;
  CARAVAN_ASSERT(found->second->grid == image.grid,
                 "two images with the content {} have {} x {} and {} x {} tiles",
                 image.content_hash, found->second->grid.down, found->second->grid.across,
                 image.grid.down, image.grid.across);
  return found->second.get();
}

StoredImage& ImageStore::create(const PromptImage& image) {
  auto stored = std::make_unique<StoredImage>();
  const ImageCost& cost = cost_of(image.grid);
  stored->content_hash = image.content_hash;
  stored->grid = image.grid;
  stored->tokens = cost.tokens;
  stored->num_units = std::ssize(cost.unit_rows);
  stored->pixels = image.pixels;
  stored->references = 1;
  const bool allocated = allocator_.allocate(blocks_of(image), stored->blocks);
  CARAVAN_ASSERT(allocated, "no blocks for an image although room was made");
  ++num_unencoded_;
  return *images_.emplace(image.content_hash, std::move(stored)).first->second;
}

void ImageStore::add_reference(StoredImage& image) {
  if (image.references++ > 0) return;
  unreferenced_.erase(keep_order(image));
  unreferenced_blocks_ -= std::ssize(image.blocks);
}

ImageStore::KeepOrder ImageStore::keep_order(const StoredImage& image) {
  return {PromptImage::kNeverAgain - image.next_use, image.released};
}

void ImageStore::share(StoredImage& image) {
  CARAVAN_ASSERT(image.references > 0, "image {} is shared but nobody owns it", image.content_hash);
  ++image.references;
}

void ImageStore::release(StoredImage& image) {
  CARAVAN_ASSERT(image.references > 0, "image {} is released but nobody owns it",
                 image.content_hash);
  if (--image.references > 0) return;
  if (image.units_done == 0) return drop(image);
  image.released = num_releases_++;
  unreferenced_.emplace(keep_order(image), &image);
  unreferenced_blocks_ += std::ssize(image.blocks);
}

void ImageStore::drop(StoredImage& image) {
  for (auto block = image.blocks.rbegin(); block != image.blocks.rend(); ++block) {
    allocator_.release(*block);
  }
  if (!image.stored()) --num_unencoded_;
  if (encoding_ == &image) encoding_ = nullptr;
  images_.erase(images_.find(image.content_hash));
}

double ImageStore::next_unit_rows(const StoredImage& image) const {
  return cost_of(image.grid).unit_rows[static_cast<std::size_t>(image.units_done)];
}

double ImageStore::encode(StoredImage& image, double max_rows, model::StepPlan& plan) {
  CARAVAN_ASSERT(!image.stored() && (encoding_ == nullptr || encoding_ == &image),
                 "the encoder works on one image at a time");
  model::StepPlan::ImageWork work;
  work.unit_begin = checked_cast<std::int32_t>(image.units_done);
  work.tiles_down = checked_cast<std::int32_t>(image.grid.down);
  work.tiles_across = checked_cast<std::int32_t>(image.grid.across);
  double rows = 0;
  do {
    rows += next_unit_rows(image);
    ++image.units_done;
  } while (!image.stored() && rows + next_unit_rows(image) <= max_rows);
  work.unit_count = checked_cast<std::int32_t>(image.units_done) - work.unit_begin;
  work.block_begin = checked_cast<std::int32_t>(plan.image_blocks.size());
  work.block_count = checked_cast<std::int32_t>(image.blocks.size());
  plan.image_blocks.insert(plan.image_blocks.end(), image.blocks.begin(), image.blocks.end());
  if (work.unit_begin == 0) {
    work.pixel_begin = checked_cast<std::int32_t>(plan.pixels.size());
    work.pixel_count = checked_cast<std::int32_t>(image.pixels->size());
    plan.pixels.insert(plan.pixels.end(), image.pixels->begin(), image.pixels->end());
    image.pixels.reset();
  }
  plan.image_work.push_back(work);
  encoding_ = image.stored() ? nullptr : &image;
  if (image.stored()) {
    --num_unencoded_;
    ++num_encoded_;
  }
  return rows;
}

}  // namespace caravan::engine
