#pragma once
// The image encoder of a model with vision on this rank: tiles of one image in, image tokens for
// the text decoder out.
//
// Every rank of the group calls the same functions in the same order with the same arguments. The
// work of an image is cut into units, so that a caller can spread it over steps: embed, each layer,
// each piece of the projection. Numerics are those of the text layers: the same bits for any
// number of ranks and threads and any instruction set.
//
// The reference always encodes four tiles, each padded to a multiple of eight tokens, and lets the
// tokens of the image see the absent tiles and the padding. Rows that are equal there are computed
// once here and counted as often as they occur: one absent tile, one padding row of each present
// tile. An image of one tile so costs about a third of one of four.
// Leaves out: preparing pixels (image/), keys and values for the text (decoder.h).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "caravan/model/config.h"
#include "caravan/model/shard_plan.h"
#include "caravan/model/vision_config.h"
#include "caravan/model/weight_source.h"
#include "caravan/ops/context.h"
#include "caravan/parallel/communicator.h"

namespace caravan::model {

/// Bytes that encoding needs on this rank besides weights, for the largest image. They are touched
/// at the first image, so that a job without images does not pay for them. @pre config.vision
std::int64_t encoder_activation_bytes(const LlamaConfig& config, const ShardShape& shape,
                                      std::int64_t num_threads);

class VisionEncoder {
 public:
  /// Rows that a layer works on at a time, and image tokens that one piece of the projection makes.
  static constexpr std::int64_t kChunkRows = 512;

  /// Reads this rank's weights. Not collective. @pre config.vision
  /// @throws ConfigError, IoError from the source.
  VisionEncoder(const LlamaConfig& config, WeightSource& source, const ops::Context& context,
                parallel::Communicator& communicator,
                const std::function<void(std::int64_t bytes)>& progress = {});
  ~VisionEncoder();
  VisionEncoder(const VisionEncoder&) = delete;
  VisionEncoder& operator=(const VisionEncoder&) = delete;

  std::int64_t weight_bytes() const;

  /// Starts an image: normalises the pixels and embeds the patches. An image begun before is
  /// forgotten.
  /// @param grid    one of kTileGrids.
  /// @param pixels  [tiles][3][T][T], red, green, blue, 0 to 255, tiles in raster order.
  void embed(const TileGrid& grid, std::span<const std::uint8_t> pixels);

  std::int64_t num_layers() const;  // local and global
  /// Collective. @pre layers run once each, in order, after embed.
  void run_layer(std::int64_t layer);

  /// Image tokens of the image: num_tiles * N; absent tiles give none.
  std::int64_t num_tokens() const;
  std::int64_t num_pieces() const { return num_pieces(num_tokens()); }
  static std::int64_t num_pieces(std::int64_t tokens) { return ceil_div(tokens, kChunkRows); }
  /// Image tokens [piece * kChunkRows, ...) on every rank: [at most kChunkRows, D], valid until the
  /// next call. Collective. @pre all layers ran.
  at::Tensor project(std::int64_t piece);

  /// For tests: rows after a stage of the last image, [rows, W]: "norm_pre", "local.0" ...,
  /// "norm_post", "post_tile", "global.0" ...; then "features" [tokens, feature size]. Rows: the
  /// tokens of the image's tiles; those of one absent tile; a padding row of each tile and of the
  /// absent one.
  void set_probe(std::function<void(std::string_view stage, const at::Tensor& rows)> probe);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Units of work for an image of this grid: embed, layers, pieces of the projection.
std::int64_t num_image_units(const VisionConfig& vision, const TileGrid& grid);

}  // namespace caravan::model
