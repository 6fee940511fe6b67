#include "prepared_cache.h"

#include <utility>

namespace caravan::image {

std::shared_ptr<const PreparedImage> PreparedCache::find(const std::string& content_hash) {
  const auto found = by_hash_.find(content_hash);
  if (found == by_hash_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return entries_.front();
}

void PreparedCache::insert(std::shared_ptr<const PreparedImage> image) {
  if (image->bytes() > max_bytes_ || find(image->content_hash)) return;
  bytes_ += image->bytes();
  entries_.push_front(std::move(image));
  by_hash_[entries_.front()->content_hash] = entries_.begin();
  while (bytes_ > max_bytes_) {
    bytes_ -= entries_.back()->bytes();
    by_hash_.erase(entries_.back()->content_hash);
    entries_.pop_back();
  }
}

}  // namespace caravan::image
