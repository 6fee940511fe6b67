#include "row_sum.h"

#include <algorithm>
#include <vector>

namespace caravan::model {
namespace {

/// @param slice_of  (shape of a rank) -> the slices that it owns.
/// @param width     columns of a slice; the model's last slice may be shorter.
template <typename SliceOf>
RowSum make(const LlamaConfig& config, const ShardShape& shape, std::int64_t num_slices,
            std::int64_t width, std::int64_t local_columns, const SliceOf& slices_of) {
  std::vector<Range> owned;
  for (const ShardShape& peer : all_shard_shapes(config, shape.num_ranks)) {
    owned.push_back(slices_of(peer));
  }
  RowSum result{parallel::SlicedSum(num_slices, owned), {}};
  const Range own = owned[static_cast<std::size_t>(shape.rank)];
  result.layout.first_slice = own.begin;
  result.layout.nodes = result.sum.nodes_of(shape.rank);
  for (std::int64_t slice = 0; slice < own.size(); ++slice) {
    result.layout.slices.push_back({slice * width, std::min((slice + 1) * width, local_columns)});
  }
  return result;
}

/// Bands that a range of columns covers; it starts at one.
Range bands_of(Range columns) {
  return {ceil_div(columns.begin, kBandColumns), ceil_div(columns.end, kBandColumns)};
}

}  // namespace

RowSum attention_row_sum(const LlamaConfig& config, const ShardShape& shape) {
  return make(config, shape, num_attention_slices(config), config.head_dim,
              shape.local_num_heads() * config.head_dim,
              [](const ShardShape& peer) { return peer.query_heads; });
}

RowSum ffn_row_sum(const LlamaConfig& config, const ShardShape& shape) {
  return make(config, shape, num_ffn_slices(config), kBandColumns, shape.local_ffn_size(),
              [](const ShardShape& peer) { return bands_of(peer.ffn_columns); });
}

RowSum vision_attention_row_sum(const LlamaConfig& config, const ShardShape& shape) {
  const std::int64_t d = config.vision->head_dim();
  return make(config, shape, num_vision_attention_slices(config), d, shape.vision_heads.size() * d,
              [](const ShardShape& peer) { return peer.vision_heads; });
}

RowSum vision_ffn_row_sum(const LlamaConfig& config, const ShardShape& shape) {
  return make(config, shape, num_vision_ffn_slices(config), kBandColumns,
              shape.vision_ffn_columns.size(),
              [](const ShardShape& peer) { return bands_of(peer.vision_ffn_columns); });
}

}  // namespace caravan::model
