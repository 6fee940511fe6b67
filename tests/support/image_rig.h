#pragma once
// Drives a decoder with images by step plans made by hand, as an engine would: images encoded unit
// by unit, sequences whose rows see images, in chunks and batches.

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "caravan/core/partition.h"
#include "caravan/model/decoder.h"

namespace caravan::test {

class ImageRig {
 public:
  struct Image {
    std::int32_t tokens = 0;
    std::vector<std::int32_t> blocks;
  };
  /// Image `image` is seen from token `begin` on, up to `end` (-1: to the end of the text).
  struct Interval {
    std::size_t image = 0;
    std::int64_t begin = 0;
    std::int64_t end = -1;
  };
  struct Sequence {
    std::vector<std::int32_t> tokens;
    std::vector<Interval> intervals;
    std::int64_t done = 0;
    std::vector<std::int32_t> blocks;
    std::vector<std::vector<float>> logits;  // of each token, on rank 0
  };
  struct Chunk {
    Sequence* sequence = nullptr;
    std::int64_t count = 0;
  };

  ImageRig(const model::LlamaConfig& config, model::WeightSource& source,
           const ops::Context& context, parallel::Communicator& communicator)
      : vision_(*config.vision), decoder_(config, source, context, communicator, limits()) {}

  static model::DecoderLimits limits() {
    model::DecoderLimits limits;
    limits.max_step_tokens = 64;
    limits.kv_blocks = kBlocks;
    limits.image_blocks = kBlocks;
    return limits;
  }

  /// Encodes an image, at most `units` units a step; a step without text.
  std::size_t encode(const model::TileGrid& grid, std::span<const std::uint8_t> pixels,
                     std::int64_t units) {
    Image image;
    image.tokens = static_cast<std::int32_t>(grid.num_tiles() * vision_.tile_tokens());
    while (std::ssize(image.blocks) < ceil_div(image.tokens, ops::KvPool::kBlockTokens)) {
      image.blocks.push_back(next_image_block());
    }
    const std::int64_t total = model::num_image_units(vision_, grid);
    for (std::int64_t unit = 0; unit < total; unit += units) {
      model::StepPlan plan;
      model::StepPlan::ImageWork work;
      work.unit_begin = static_cast<std::int32_t>(unit);
      work.unit_count = static_cast<std::int32_t>(std::min(units, total - unit));
      work.tiles_down = static_cast<std::int32_t>(grid.down);
      work.tiles_across = static_cast<std::int32_t>(grid.across);
      if (unit == 0) plan.pixels.assign(pixels.begin(), pixels.end());
      work.pixel_count = static_cast<std::int32_t>(plan.pixels.size());
      plan.image_blocks = image.blocks;
      work.block_count = static_cast<std::int32_t>(image.blocks.size());
      plan.image_work = {work};
      decoder_.forward(model::StepPlan::deserialize(plan.serialize()));
    }
    images_.push_back(image);
    return images_.size() - 1;
  }

  /// One step over the next tokens of some sequences; their logits are kept.
  void step(const std::vector<Chunk>& chunks) {
    model::StepPlan plan;
    std::vector<Sequence*> owner;
    for (const Chunk& chunk : chunks) add(plan, *chunk.sequence, chunk.count, owner);
    decoder_.forward(plan);
    decoder_.logits([&](std::int64_t index, std::span<const float> row) {
      owner[static_cast<std::size_t>(index)]->logits.emplace_back(row.begin(), row.end());
    });
  }

  model::Decoder& decoder() { return decoder_; }

 private:
  static constexpr std::int64_t kBlocks = 101;  // prime: any step visits all blocks

  void add(model::StepPlan& plan, Sequence& sequence, std::int64_t count,
           std::vector<Sequence*>& owner) {
    const auto first_row = static_cast<std::int32_t>(plan.tokens.size());
    while (std::ssize(sequence.blocks) <
           ceil_div(sequence.done + count, ops::KvPool::kBlockTokens)) {
      sequence.blocks.push_back(static_cast<std::int32_t>(next_block_++ * 7 % kBlocks));
    }
    plan.segments.push_back({first_row, static_cast<std::int32_t>(count),
                             static_cast<std::int32_t>(sequence.done),
                             static_cast<std::int32_t>(plan.blocks.size()),
                             static_cast<std::int32_t>(sequence.blocks.size())});
    plan.blocks.insert(plan.blocks.end(), sequence.blocks.begin(), sequence.blocks.end());
    std::vector<std::size_t> seen;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t position = sequence.done + i;
      const auto row = static_cast<std::int32_t>(plan.tokens.size());
      plan.tokens.push_back(sequence.tokens[static_cast<std::size_t>(position)]);
      plan.positions.push_back(static_cast<std::int32_t>(position));
      plan.logit_rows.push_back(row);
      owner.push_back(&sequence);
      std::vector<std::size_t> now;
      for (const Interval& interval : sequence.intervals) {
        if (position < interval.begin) continue;
        if (interval.end < 0 || position < interval.end) now.push_back(interval.image);
      }
      if (now.empty()) {
      } else if (i > 0 && now == seen) {
        ++plan.image_rows.back().row_count;
      } else {
        begin_rows(plan, row, now);
      }
      seen = std::move(now);
    }
    sequence.done += count;
  }

  void begin_rows(model::StepPlan& plan, std::int32_t row, const std::vector<std::size_t>& seen) {
    model::StepPlan::ImageRows rows;
    rows.row_begin = row;
    rows.row_count = 1;
    rows.image_begin = static_cast<std::int32_t>(plan.seen_tokens.size());
    rows.block_begin = static_cast<std::int32_t>(plan.seen_blocks.size());
    for (const std::size_t index : seen) {
      const Image& image = images_[index];
      plan.seen_tokens.push_back(image.tokens);
      plan.seen_blocks.insert(plan.seen_blocks.end(), image.blocks.begin(), image.blocks.end());
    }
    rows.image_count = static_cast<std::int32_t>(seen.size());
    rows.block_count = static_cast<std::int32_t>(plan.seen_blocks.size()) - rows.block_begin;
    plan.image_rows.push_back(rows);
  }

  // Out of order and with gaps: placement must not matter.
  std::int32_t next_image_block() {
    return static_cast<std::int32_t>((next_image_block_++ * 5 + 2) % kBlocks);
  }

  model::VisionConfig vision_;
  model::Decoder decoder_;
  std::vector<Image> images_;
  std::int64_t next_block_ = 0;
  std::int64_t next_image_block_ = 0;
};

}  // namespace caravan::test
