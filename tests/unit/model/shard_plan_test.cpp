#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "caravan/model/shard_plan.h"
#include "caravan/model/stored_parts.h"
#include "support/tiny_model.h"

namespace caravan::model {
namespace {

LlamaConfig config_of(std::int64_t heads, std::int64_t kv_heads, std::int64_t ffn,
                      std::int64_t vocab) {
  LlamaConfig config = test::uneven_config();
  config.num_heads = heads;
  config.num_kv_heads = kv_heads;
  config.ffn_size = ffn;
  config.vocab_size = vocab;
  return config;
}

TEST(ShardPlan, SpreadsHeadsColumnsAndVocabularyOverAnyNumberOfRanks) {
  for (const LlamaConfig& config : {config_of(9, 3, 1536, 49152), config_of(15, 5, 2560, 49152),
                                    config_of(32, 8, 14336, 128256), config_of(4, 2, 176, 1531),
                                    config_of(24, 8, 8192, 128256)}) {
    const std::int64_t group = config.num_heads / config.num_kv_heads;
    for (int num_ranks = 1; num_ranks <= 12; ++num_ranks) {
      const auto shapes = all_shard_shapes(config, num_ranks);
      Range heads{0, 0};
      Range columns{0, 0};
      Range rows{0, 0};
      for (const ShardShape& shape : shapes) {
        EXPECT_EQ(shape.query_heads.begin, heads.end);
        EXPECT_EQ(shape.ffn_columns.begin, columns.end);
        EXPECT_EQ(shape.vocab_rows.begin, rows.end);
        EXPECT_TRUE(shape.ffn_columns.empty() || shape.ffn_columns.begin % kBandColumns == 0);
        heads = shape.query_heads;
        columns = shape.ffn_columns;
        rows = shape.vocab_rows;
        // Balanced to one head, and exactly the KV heads that the query heads read.
        EXPECT_GE(shape.local_num_heads(), config.num_heads / num_ranks);
        EXPECT_LE(shape.local_num_heads(), config.num_heads / num_ranks + 1);
        std::set<std::int64_t> needed;
        for (std::int64_t head = shape.query_heads.begin; head < shape.query_heads.end; ++head) {
          needed.insert(head / group);
        }
        EXPECT_EQ(std::ssize(needed), shape.local_num_kv_heads());
        for (const std::int64_t head : needed) EXPECT_TRUE(shape.kv_heads.contains(head));
      }
      EXPECT_EQ(heads.end, config.num_heads);
      EXPECT_EQ(columns.end, config.ffn_size);
      EXPECT_EQ(rows.end, config.vocab_size);
    }
  }
}

/// What a rank has of each kind of item beyond the ranks with least of it, added up.
std::int64_t surplus_of(const ShardShape& shape, const LlamaConfig& config) {
  const auto beyond = [&](Range own, std::int64_t total, std::int64_t band) {
    return ceil_div(own.size(), band) - ceil_div(total, band) / shape.num_ranks;
  };
  std::int64_t surplus = beyond(shape.query_heads, config.num_heads, 1) +
                         beyond(shape.ffn_columns, config.ffn_size, kBandColumns) +
                         beyond(shape.vocab_rows, config.vocab_size, kBandColumns);
  if (config.vision) {
    surplus += beyond(shape.hidden_rows, config.hidden_size, kBandColumns) +
               beyond(shape.vision_heads, config.vision->num_heads, 1) +
               beyond(shape.vision_ffn_columns, config.vision->ffn_size, kBandColumns);
  }
  return surplus;
}

// Else the first ranks, and above all rank 0, which also samples, have one more of everything.
TEST(ShardPlan, NoRankCarriesTheSurplusOfEverything) {
  for (const LlamaConfig& config :
       {config_of(9, 3, 1536, 49152), config_of(15, 5, 2560, 49152), config_of(4, 2, 176, 1531),
        config_of(24, 8, 8192, 128256), test::uneven_vision_config()}) {
    for (int num_ranks = 1; num_ranks <= 40; ++num_ranks) {
      std::int64_t least = 100;
      std::int64_t most = -100;
      for (const ShardShape& shape : all_shard_shapes(config, num_ranks)) {
        const std::int64_t surplus = surplus_of(shape, config);
        least = std::min(least, surplus);
        most = std::max(most, surplus);
      }
      EXPECT_LE(most - least, 1) << config.num_heads << " heads on " << num_ranks << " ranks";
    }
  }
}

/// The ranks' rows are whole bands and together all rows, for 1 to 6 ranks.
void expect_complete_bands(const LlamaConfig& config) {
  for (int num_ranks = 1; num_ranks <= 6; ++num_ranks) {
    for (const TensorSpec& spec : tensor_specs(config)) {
      std::vector<bool> covered(static_cast<std::size_t>(spec.rows));
      for (const ShardShape& shape : all_shard_shapes(config, num_ranks)) {
        const Range rows = shape.rows_of(spec, config);
        if (rows.empty()) continue;
        EXPECT_EQ(rows.begin % spec.band_rows, 0) << spec.name;
        EXPECT_TRUE(rows.end % spec.band_rows == 0 || rows.end == spec.rows) << spec.name;
        for (std::int64_t row = rows.begin; row < rows.end; ++row) {
          covered[static_cast<std::size_t>(row)] = true;
        }
      }
      EXPECT_EQ(std::count(covered.begin(), covered.end(), true), spec.rows) << spec.name;
    }
  }
}

TEST(ShardPlan, EveryRankReadsWholeBandsAndTogetherEverything) {
  LlamaConfig config = config_of(9, 3, 200, 331);
  config.tied_embeddings = false;
  config.attention_bias = true;
  config.mlp_bias = true;
  expect_complete_bands(config);
  expect_complete_bands(test::uneven_vision_config());
}

/// Llama 3.2 Vision 11B and 90B as published, with tiles of 560 pixels.
LlamaConfig released_vision_config(std::int64_t hidden, std::int64_t ffn, std::int64_t layers,
                                   std::int64_t heads) {
  LlamaConfig config;
  config.vocab_size = 128256;
  config.hidden_size = hidden;
  config.ffn_size = ffn;
  config.num_layers = layers;
  config.num_heads = heads;
  config.num_kv_heads = 8;
  config.head_dim = 128;
  config.max_positions = 131072;
  VisionConfig vision;
  vision.tile_size = 560;
  vision.patch_size = 14;
  vision.width = 1280;
  vision.num_heads = 16;
  vision.ffn_size = 5120;
  vision.num_local_layers = 32;
  vision.num_global_layers = 8;
  vision.saved_layers = {3, 7, 15, 23, 30};
  for (std::int64_t layer = 3; layer < layers; layer += 4) vision.cross_layers.push_back(layer);
  vision.image_token_id = config.vocab_size;
  config.vision = vision;
  return config;
}

std::int64_t num_parameters(const LlamaConfig& config) {
  std::int64_t total = 0;
  for (const TensorSpec& spec : tensor_specs(config)) total += spec.num_elements();
  return total;
}

// Published counts, less the cells of tile tables that are always zero in the published form: it
// has 9 x 4 cells a table, ours the 8 that some arrangement of tiles uses.
TEST(ShardPlan, VisionModelsHaveThePublishedNumberOfParameters) {
  constexpr std::int64_t kUnusedCells = 28 * (1601 + 2) * 1280;
  const LlamaConfig small = released_vision_config(4096, 14336, 32, 32);
  ASSERT_TRUE(small.problems().empty()) << small.problems().front();
  EXPECT_EQ(small.vision->tile_tokens(), 1601);
  EXPECT_EQ(small.vision->padded_tile_tokens(), 1608);
  EXPECT_EQ(small.vision->feature_size(), 7680);
  EXPECT_EQ(num_parameters(small), 10670220835 - kUnusedCells);
  EXPECT_EQ(num_parameters(released_vision_config(8192, 28672, 80, 64)),
            88593355323 - kUnusedCells);
}

TEST(VisionConfig, StoredCellsAreThoseThatSomeGridUses) {
  for (const TileGrid& grid : kTileGrids) {
    EXPECT_LE(grid.num_tiles(), kMaxTiles);
    for (std::int64_t row = 0; row < grid.down; ++row) {
      for (std::int64_t column = 0; column < grid.across; ++column) {
        EXPECT_GE(tile_cell_index({row, column}), 0);
      }
    }
  }
  EXPECT_EQ(tile_cell_index({1, 1}), 5);
  EXPECT_EQ(tile_cell_index({2, 1}), -1);
}

TEST(ShardPlan, ListsEveryTensorOnceWithItsShape) {
  LlamaConfig config = config_of(9, 3, 200, 331);
  config.num_layers = 2;
  const auto specs = tensor_specs(config);
  std::set<std::string> names;
  for (const TensorSpec& spec : specs) EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
  EXPECT_EQ(specs.size(), 1U + 2U * 9U + 1U);
  EXPECT_FALSE(names.contains("text.head"));
  config.tied_embeddings = false;
  EXPECT_EQ(tensor_specs(config).size(), specs.size() + 1);
  for (const TensorSpec& spec : specs) {
    if (spec.name == "text.layer.1.wo") {
      EXPECT_EQ(spec.rows, 72);
      EXPECT_TRUE(spec.transposed);
      EXPECT_EQ(spec.num_bands(), 9);
    }
    if (spec.name == "text.layer.0.w2") {
      EXPECT_EQ(spec.num_bands(), 4);
    }
  }
}

TEST(ShardPlan, WeightBytesOfOneRankAreTheWholeModel) {
  const LlamaConfig config = config_of(9, 3, 200, 331);
  std::int64_t expected = 0;
  for (const TensorSpec& spec : tensor_specs(config)) {
    expected += spec.num_elements() * (spec.is_vector ? 4 : 2);
  }
  EXPECT_EQ(shard_weight_bytes(config, shard_shape(config, 0, 1), DType::kBFloat16), expected);
}

}  // namespace
}  // namespace caravan::model
