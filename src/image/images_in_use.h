#pragma once
// Prepared images that somebody still holds, by what their files contain: an image is decoded once
// while it is in use, and its bytes count once however many tickets share it. Not for several
// threads at a time: the pipeline's lock is held by whoever calls.

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "caravan/image/tiling.h"

namespace caravan::image {

using ImagePointer = std::shared_ptr<const PreparedImage>;

class ImagesInUse {
 public:
  /// Null if nobody holds one of that content.
  ImagePointer find(const std::string& content_hash) const {
    const auto found = by_hash_.find(content_hash);
    return found == by_hash_.end() ? nullptr : found->second.lock();
  }
  void add(const ImagePointer& image) {
    if (by_hash_.size() >= most_entries_) {
      std::erase_if(by_hash_, [](const auto& entry) { return entry.second.expired(); });
      most_entries_ = 2 * by_hash_.size() + kFewImages;
    }
    by_hash_[image->content_hash] = image;
  }

  /// One ticket more for `image`; null is none. Returns the bytes that are held more by that.
  std::int64_t hold(const ImagePointer& image) {
    return image && ++holders_[image.get()] == 1 ? image->bytes() : 0;
  }
  /// One ticket less. Returns the bytes that are held less by that.
  std::int64_t release(const ImagePointer& image) {
    if (!image || --holders_.at(image.get()) > 0) return 0;
    holders_.erase(image.get());
    return image->bytes();
  }

 private:
  static constexpr std::size_t kFewImages = 64;

  std::unordered_map<std::string, std::weak_ptr<const PreparedImage>> by_hash_;
  std::unordered_map<const PreparedImage*, std::int64_t> holders_;
  std::size_t most_entries_ = kFewImages;  // before those of gone images are dropped
};

}  // namespace caravan::image
