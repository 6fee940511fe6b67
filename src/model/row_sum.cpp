#include "row_sum.h"

#include <algorithm>
#include <vector>

#include "caravan/ops/buffers.h"
#include "caravan/ops/vision_rows.h"

namespace caravan::model {
namespace {

/// How features are cut, over all ranks and on this one.
struct Cut {
  std::int64_t num_slices = 0;
  std::int64_t width = 0;  // columns of a slice; the model's last slice may be shorter
  std::int64_t local_columns = 0;
};

/// @param slices_of  (shape of a rank) -> the slices that it owns.
template <typename SlicesOf>
RowSum make(const LlamaConfig& config, const ShardShape& shape, const Cut& cut,
            const SlicesOf& slices_of) {
  std::vector<Range> owned;
  for (const ShardShape& peer : all_shard_shapes(config, shape.num_ranks)) {
    owned.push_back(slices_of(peer));
  }
  RowSum result{parallel::SlicedSum(cut.num_slices, owned), {}};
  const Range own = owned[static_cast<std::size_t>(shape.rank)];
  result.layout.first_slice = own.begin;
  result.layout.nodes = result.sum.nodes_of(shape.rank);
  for (std::int64_t slice = 0; slice < own.size(); ++slice) {
    result.layout.slices.push_back(
        {slice * cut.width, std::min((slice + 1) * cut.width, cut.local_columns)});
  }
  return result;
}

/// Bands that a range of columns covers; it starts at one.
Range bands_of(Range columns) {
  return {ceil_div(columns.begin, kBandColumns), ceil_div(columns.end, kBandColumns)};
}

}  // namespace

RowSum attention_row_sum(const LlamaConfig& config, const ShardShape& shape) {
  return make(
      config, shape,
      {num_attention_slices(config), config.head_dim, shape.local_num_heads() * config.head_dim},
      [](const ShardShape& peer) { return peer.query_heads; });
}

RowSum ffn_row_sum(const LlamaConfig& config, const ShardShape& shape) {
  return make(config, shape, {num_ffn_slices(config), kBandColumns, shape.local_ffn_size()},
              [](const ShardShape& peer) { return bands_of(peer.ffn_columns); });
}

RowSum vision_attention_row_sum(const LlamaConfig& config, const ShardShape& shape) {
  const std::int64_t d = config.vision->head_dim();
  return make(config, shape,
              {num_vision_attention_slices(config), d, shape.vision_heads.size() * d},
              [](const ShardShape& peer) { return peer.vision_heads; });
}

RowSum vision_ffn_row_sum(const LlamaConfig& config, const ShardShape& shape) {
  return make(config, shape,
              {num_vision_ffn_slices(config), kBandColumns, shape.vision_ffn_columns.size()},
              [](const ShardShape& peer) { return bands_of(peer.vision_ffn_columns); });
}

void add_gated_sum(const ops::Context& context, parallel::Communicator& communicator,
                   const GatedProduct& product, SumViews views, at::Tensor& target) {
  ops::linear_sliced(context, product.input, product.weight, product.row_sum.layout,
                     views.partials);
  ops::set_zero(context, views.sum);
  communicator.add_sliced_sum(product.row_sum.sum, views.partials, views.sum);
  ops::add_scaled(context, views.sum, product.bias, product.gate, target);
}

}  // namespace caravan::model
