#pragma once
// Normalisation of pixels as the vision models expect it. Private to src/model.

#include <array>
#include <cstddef>

#include "caravan/model/vision_config.h"

namespace caravan::model {

/// [channel][value]: (value / 255 - mean) / deviation in float32, rounded after each operation.
using PixelTable = std::array<std::array<float, 256>, 3>;

inline PixelTable make_pixel_table() {
  PixelTable table{};
  for (std::size_t channel = 0; channel < 3; ++channel) {
    for (std::size_t value = 0; value < 256; ++value) {
      const float scaled = static_cast<float>(value) / 255.0F;
      table[channel][value] = (scaled - kPixelMean[channel]) / kPixelDeviation[channel];
    }
  }
  return table;
}

}  // namespace caravan::model
