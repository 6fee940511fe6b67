#include "encoder_rows.h"

#include <cmath>

#include "caravan/ops/kv_pool.h"

namespace caravan::model {
namespace {

constexpr std::int64_t kBlock = ops::KvPool::kBlockTokens;

}  // namespace

std::int64_t most_encoder_blocks(const VisionConfig& vision) {
  std::int64_t most = 0;
  for (const TileGrid& grid : kTileGrids) {
    most = std::max(most, std::ssize(EncoderRows(vision, grid).blocks()));
  }
  return most;
}

EncoderRows::EncoderRows(const VisionConfig& vision, const TileGrid& grid)
    : grid_(grid), tile_tokens_(vision.tile_tokens()) {
  const std::int64_t tiles = grid.num_tiles();
  const std::int64_t absent = kMaxTiles - tiles;
  const std::int64_t padding = vision.padded_tile_tokens() - tile_tokens_;
  image_tokens_ = tiles * tile_tokens_;
  add_run(image_tokens_, 1);
  if (absent > 0) add_run(tile_tokens_, absent);
  tile_rows_ = total_;
  if (padding == 0) return;
  add_run(tiles, padding);
  if (absent > 0) add_run(1, absent * padding);
}

void EncoderRows::add_run(std::int64_t rows, std::int64_t times) {
  // Rounded once from extended precision: the same on every machine.
  key_runs_.push_back({static_cast<std::int32_t>(rows),
                       static_cast<float>(std::log(static_cast<long double>(times)))});
  for (std::int64_t block = 0; block < ceil_div(rows, kBlock); ++block) {
    blocks_.push_back(static_cast<std::int32_t>(blocks_.size()));
  }
  total_ += rows;
}

EncoderRows::Place EncoderRows::place(std::int64_t row) const {
  const bool padding = row >= tile_rows_;
  const std::int64_t tile = padding ? row - tile_rows_ : row / tile_tokens_;
  const std::int64_t token = padding ? -1 : row % tile_tokens_;
  if (tile >= grid_.num_tiles()) return {-1, -1, token};
  return {tile, tile_cell_index({tile / grid_.across, tile % grid_.across}), token};
}

std::vector<EncoderRows::Run> EncoderRows::runs() const {
  std::vector<Run> runs;
  std::int64_t row = 0;
  std::size_t block = 0;
  for (const ops::KeyRun& run : key_runs_) {
    const auto count = static_cast<std::size_t>(ceil_div(run.tokens, kBlock));
    runs.push_back({{row, row + run.tokens}, std::span(blocks_).subspan(block, count)});
    row += run.tokens;
    block += count;
  }
  return runs;
}

}  // namespace caravan::model
