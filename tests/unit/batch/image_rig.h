#pragma once
// Chats with images over the byte tokenizer, and the catalog that checks their images.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "caravan/batch/image_catalog.h"
#include "caravan/batch/record.h"

namespace caravan::test {

inline constexpr std::int64_t kTinyTile = 28;

inline std::string pictures() { return std::string(CARAVAN_TEST_DATA) + "/images"; }

/// Tiles of 28 pixels, each of 5 image tokens; blocks of 16.
inline batch::ImageOptions tiny_images() {
  batch::ImageOptions options;
  options.tiling.tile_size = kTinyTile;
  options.tile_tokens = 5;
  return options;
}

/// One user message that shows these images, nothing between them where `apart` is false.
inline batch::Record image_record(const std::vector<std::string>& urls, bool apart = false) {
  batch::Record record;
  record.custom_id = "r";
  text::ChatMessage message{"user", std::string(urls.size(), 'x'), {}};
  for (std::size_t i = 0; i < urls.size(); ++i) {
    message.image_offsets.push_back(apart ? i : 0);
    record.images.push_back({urls[i], "messages.0.content." + std::to_string(i)});
  }
  record.messages.push_back(std::move(message));
  return record;
}

}  // namespace caravan::test
