#pragma once
// Prepared images by content, the longest unused one dropped first. Not thread-safe.

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "caravan/image/tiling.h"

namespace caravan::image {

class PreparedCache {
 public:
  explicit PreparedCache(std::int64_t max_bytes) : max_bytes_(max_bytes) {}

  /// Null if it is not there.
  std::shared_ptr<const PreparedImage> find(const std::string& content_hash);
  /// Images larger than the whole cache are not kept.
  void insert(std::shared_ptr<const PreparedImage> image);

 private:
  using Entries = std::list<std::shared_ptr<const PreparedImage>>;

  std::int64_t max_bytes_;
  std::int64_t bytes_ = 0;
  Entries entries_;  // the last used one first
  std::unordered_map<std::string, Entries::iterator> by_hash_;
};

}  // namespace caravan::image
