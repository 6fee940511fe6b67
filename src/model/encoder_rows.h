#pragma once
// Which rows the image encoder computes for a grid of tiles, and which keys they see. Private to
// src/model.
//
// Rows, in order: the tokens of the image's tiles; the tokens of one absent tile, if any is absent;
// a row of padding of each tile, and one of the absent tiles. Absent tiles are alike and so are the
// padding rows of a tile, so one of each is computed and counted as often as it occurs.

#include <cstdint>
#include <span>
#include <vector>

#include "caravan/core/partition.h"
#include "caravan/model/vision_config.h"
#include "caravan/ops/key_run.h"

namespace caravan::model {

/// Blocks of keys that the largest image takes.
std::int64_t most_encoder_blocks(const VisionConfig& vision);

class EncoderRows {
 public:
  /// What a row is.
  struct Place {
    std::int64_t tile = 0;   // in raster order; -1 of an absent one
    std::int64_t cell = 0;   // its row in the tile tables; -1 of an absent one
    std::int64_t token = 0;  // in the tile; -1 for padding
  };
  /// Rows whose keys lie together.
  struct Run {
    Range rows;
    std::span<const std::int32_t> blocks;
  };

  EncoderRows() = default;
  EncoderRows(const VisionConfig& vision, const TileGrid& grid);

  std::int64_t image_tokens() const { return image_tokens_; }
  std::int64_t tile_rows() const { return tile_rows_; }  // all but padding
  std::int64_t total() const { return total_; }
  Place place(std::int64_t row) const;

  /// For the operations: the first run holds the tokens of the image.
  std::span<const ops::KeyRun> key_runs() const { return key_runs_; }
  std::span<const std::int32_t> blocks() const { return blocks_; }
  std::vector<Run> runs() const;

 private:
  void add_run(std::int64_t rows, std::int64_t times);

  TileGrid grid_;
  std::int64_t tile_tokens_ = 1;
  std::int64_t image_tokens_ = 0;
  std::int64_t tile_rows_ = 0;
  std::int64_t total_ = 0;
  std::vector<ops::KeyRun> key_runs_;
  std::vector<std::int32_t> blocks_;
};

}  // namespace caravan::model
