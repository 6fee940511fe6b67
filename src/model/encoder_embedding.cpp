#include "encoder_embedding.h"

#include <algorithm>
#include <utility>

#include "caravan/ops/buffers.h"
#include "caravan/ops/elementwise.h"
#include "caravan/ops/linear.h"
#include "caravan/ops/vision_rows.h"

namespace caravan::model {

EncoderEmbedding::EncoderEmbedding(const VisionConfig& vision, const ops::Context& context,
                                   const VisionWeights& weights, Buffers buffers)
    : vision_(vision),
      context_(context),
      weights_(weights),
      buffers_(std::move(buffers)),
      pixel_table_(make_pixel_table()) {}

/// target += scale * table[table_rows_].
void EncoderEmbedding::add_rows_of(const ops::PackedWeight& table, float scale,
                                   at::Tensor& target) {
  at::Tensor terms = buffers_.terms.narrow(0, 0, target.size(0));  // [chunk, W]
  ops::embedding(context_, table_rows_, table, Range{0, table.out_features()}, terms);
  ops::add_scaled(context_, terms, {}, scale, target);
}

/// By channel, row and column of pixels. @param corner  first pixel of the patch in its tile.
void EncoderEmbedding::copy_patch(const std::uint8_t* corner, float* out) const {
  const std::int64_t side = vision_.patch_size;
  const std::int64_t tile = vision_.tile_size;
  for (std::int64_t channel = 0; channel < 3; ++channel) {
    for (std::int64_t y = 0; y < side; ++y) {
      const std::uint8_t* const line = corner + (channel * tile + y) * tile;
      for (std::int64_t i = 0; i < side; ++i) {
        *out++ = pixel_table_[static_cast<std::size_t>(channel)][line[i]];
      }
    }
  }
}

void EncoderEmbedding::embed_patches(const EncoderRows& rows, Range chunk,
                                     const std::uint8_t* pixels, at::Tensor& target) {
  const std::int64_t side = vision_.patch_size;
  const std::int64_t across = vision_.patches_across();
  const std::int64_t tile = vision_.tile_size;
  at::Tensor patches = buffers_.patches.narrow(0, 0, chunk.size());  // [chunk, 3 * P * P]
  table_rows_.clear();
  for (std::int64_t row = chunk.begin; row < chunk.end; ++row) {
    auto* const out = patches.data_ptr<float>() + (row - chunk.begin) * vision_.patch_elements();
    const EncoderRows::Place place = rows.place(row);
    const std::int64_t patch = place.token - 1;
    if (patch < 0 || place.cell < 0) {  // class token; tile without pixels
      std::fill_n(out, vision_.patch_elements(), 0.0F);
      table_rows_.push_back(-1);
      continue;
    }
    table_rows_.push_back(static_cast<std::int32_t>(place.cell));
    copy_patch(pixels + place.tile * 3 * tile * tile + patch / across * side * tile +
                   patch % across * side,
               out);
  }
  ops::linear(context_, patches, weights_.patch, {}, target);
  add_rows_of(weights_.pre_tile, weights_.pre_tile_gate, target);
}

void EncoderEmbedding::add_positions(const EncoderRows& rows, Range chunk, at::Tensor& target) {
  table_rows_.clear();
  for (std::int64_t row = chunk.begin; row < chunk.end; ++row) {
    const std::int64_t token = rows.place(row).token;
    table_rows_.push_back(static_cast<std::int32_t>(token));
    if (token != 0) continue;
    ops::copy_row(context_, weights_.class_token.unsqueeze(0), 0, target, row - chunk.begin);
  }
  add_rows_of(weights_.position, 1.0F - weights_.position_gate, target);
  table_rows_.clear();
  for (std::int64_t row = chunk.begin; row < chunk.end; ++row) {
    const EncoderRows::Place place = rows.place(row);
    table_rows_.push_back(static_cast<std::int32_t>(
        place.cell < 0 ? -1 : place.cell * vision_.tile_tokens() + place.token));
  }
  add_rows_of(weights_.position_tile, weights_.position_gate, target);
}

void EncoderEmbedding::add_tiles(const EncoderRows& rows, Range chunk, at::Tensor& target) {
  table_rows_.clear();
  for (std::int64_t row = chunk.begin; row < chunk.end; ++row) {
    table_rows_.push_back(static_cast<std::int32_t>(rows.place(row).cell));
  }
  add_rows_of(weights_.post_tile, weights_.post_tile_gate, target);
}

}  // namespace caravan::model
