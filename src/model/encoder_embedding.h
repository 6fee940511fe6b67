#pragma once
// What the vision encoder begins with: patches of pixels as rows, and the embeddings that tell
// where a row stands in its tile and its tile among the others. Private to src/model.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "caravan/core/partition.h"
#include "caravan/model/vision_config.h"
#include "caravan/ops/context.h"
#include "encoder_rows.h"
#include "pixel_table.h"
#include "vision_weights.h"

namespace caravan::model {

class EncoderEmbedding {
 public:
  /// Buffers for the rows of a chunk: shared with whoever uses them between calls.
  struct Buffers {
    at::Tensor patches;  // [chunk, 3 * P * P]
    at::Tensor terms;    // [chunk, W]
  };
  /// References outlive this object.
  EncoderEmbedding(const VisionConfig& vision, const ops::Context& context,
                   const VisionWeights& weights, Buffers buffers);

  // Below, `target` [n, W] are the rows `chunk` of the image. Not collective.

  /// target = the patches of the rows, and what tells their tile.
  /// @param pixels  [tiles, 3, T, T]
  void embed_patches(const EncoderRows& rows, Range chunk, const std::uint8_t* pixels,
                     at::Tensor& target);
  /// Puts class tokens into their rows, and adds what tells places within tiles.
  void add_positions(const EncoderRows& rows, Range chunk, at::Tensor& target);
  /// Adds what tells tiles behind the local layers.
  void add_tiles(const EncoderRows& rows, Range chunk, at::Tensor& target);

 private:
  void copy_patch(const std::uint8_t* corner, float* out) const;
  void add_rows_of(const ops::PackedWeight& table, float scale, at::Tensor& target);

  const VisionConfig& vision_;
  const ops::Context& context_;
  const VisionWeights& weights_;
  Buffers buffers_;
  PixelTable pixel_table_;
  std::vector<std::int32_t> table_rows_;  // which row of an embedding table each row adds; -1: none
};

}  // namespace caravan::model
