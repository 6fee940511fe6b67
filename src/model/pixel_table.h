#pragma once
// Normalisation of pixels as the vision models expect it. Private to src/model.

#include <array>
#include <cstddef>

namespace caravan::model {

/// [channel][value]: (value / 255 - mean) / deviation in float32, rounded after each operation.
using PixelTable = std::array<std::array<float, 256>, 3>;

/// Mean and deviation of CLIP (Radford et al. 2021), which Llama 3.2 Vision was trained with.
inline PixelTable make_pixel_table() {
  constexpr float kMean[3] = {0.48145466F, 0.4578275F, 0.40821073F};
  constexpr float kDeviation[3] = {0.26862954F, 0.26130258F, 0.27577711F};
  PixelTable table{};
  for (std::size_t channel = 0; channel < 3; ++channel) {
    for (std::size_t value = 0; value < 256; ++value) {
      const float scaled = static_cast<float>(value) / 255.0F;
      table[channel][value] = (scaled - kMean[channel]) / kDeviation[channel];
    }
  }
  return table;
}

}  // namespace caravan::model
