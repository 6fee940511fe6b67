#pragma once
// Memory that begins at a page, as transfers that bypass the page cache need it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "caravan/core/checked_cast.h"

namespace caravan::io {

/// Of addresses, offsets and sizes of such transfers; a multiple of what any disk asks for.
inline constexpr std::int64_t kDirectAlignment = 4096;

class AlignedBuffer {
 public:
  /// `bytes` bytes; what they hold is not kept.
  std::span<std::byte> resized(std::int64_t bytes) {
    const std::size_t size = checked_cast<std::size_t>(bytes);
    if (storage_.size() < size + kDirectAlignment) storage_.resize(size + kDirectAlignment);
    void* begin = storage_.data();
    std::size_t space = storage_.size();
    return {static_cast<std::byte*>(std::align(kDirectAlignment, size, begin, space)), size};
  }

 private:
  std::vector<std::byte> storage_;
};

}  // namespace caravan::io
