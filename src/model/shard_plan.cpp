#include "caravan/model/shard_plan.h"

#include <algorithm>

#include "caravan/core/error.h"

namespace caravan::model {
namespace {

TensorSpec vector_spec(std::string name, std::int64_t rows, Split split, std::int64_t band_rows) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.rows = rows;
  spec.is_vector = true;
  spec.split = split;
  spec.band_rows = band_rows;
  return spec;
}

TensorSpec replicated_vector(std::string name, std::int64_t rows) {
  return vector_spec(std::move(name), rows, Split::kReplicated, rows);
}

enum class Layout { kAsTorch, kTransposed };

TensorSpec matrix_spec(std::string name, std::int64_t rows, std::int64_t columns, Split split,
                       std::int64_t band_rows, Layout layout = Layout::kAsTorch) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.rows = rows;
  spec.columns = columns;
  spec.transposed = layout == Layout::kTransposed;
  spec.split = split;
  spec.band_rows = band_rows;
  return spec;
}

/// Norm and projections before attention, of a layer whose tensors begin with `prefix`.
void append_qkv_specs(const LlamaConfig& config, const std::string& prefix,
                      std::vector<TensorSpec>& specs) {
  const std::int64_t d = config.head_dim;
  const std::int64_t kv_rows = config.num_kv_heads * d;
  const std::int64_t width = config.hidden_size;
  specs.push_back(replicated_vector(prefix + "attn_norm", width));
  specs.push_back(matrix_spec(prefix + "wq", config.num_heads * d, width, Split::kQueryHeads, d));
  specs.push_back(matrix_spec(prefix + "wk", kv_rows, width, Split::kKvHeads, d));
  specs.push_back(matrix_spec(prefix + "wv", kv_rows, width, Split::kKvHeads, d));
}

TensorSpec attention_output_spec(const LlamaConfig& config, const std::string& prefix) {
  return matrix_spec(prefix + "wo", config.num_heads * config.head_dim, config.hidden_size,
                     Split::kQueryHeads, config.head_dim, Layout::kTransposed);
}

void append_ffn_specs(const LlamaConfig& config, const std::string& prefix,
                      std::vector<TensorSpec>& specs) {
  const std::int64_t width = config.hidden_size;
  const std::int64_t ffn = config.ffn_size;
  specs.push_back(replicated_vector(prefix + "ffn_norm", width));
  specs.push_back(matrix_spec(prefix + "w1", ffn, width, Split::kFfnColumns, kBandColumns));
  specs.push_back(matrix_spec(prefix + "w3", ffn, width, Split::kFfnColumns, kBandColumns));
  specs.push_back(matrix_spec(prefix + "w2", ffn, width, Split::kFfnColumns, kBandColumns,
                              Layout::kTransposed));
}

void append_layer_specs(const LlamaConfig& config, std::int64_t layer,
                        std::vector<TensorSpec>& specs) {
  const std::string prefix = fmt::format("text.layer.{}.", layer);
  const std::int64_t d = config.head_dim;
  const std::int64_t kv_rows = config.num_kv_heads * d;
  const std::int64_t ffn = config.ffn_size;
  append_qkv_specs(config, prefix, specs);
  specs.push_back(attention_output_spec(config, prefix));
  if (config.attention_bias) {
    specs.push_back(vector_spec(prefix + "wq.bias", config.num_heads * d, Split::kQueryHeads, d));
    specs.push_back(vector_spec(prefix + "wk.bias", kv_rows, Split::kKvHeads, d));
    specs.push_back(vector_spec(prefix + "wv.bias", kv_rows, Split::kKvHeads, d));
    specs.push_back(replicated_vector(prefix + "wo.bias", config.hidden_size));
  }
  append_ffn_specs(config, prefix, specs);
  if (config.mlp_bias) {
    specs.push_back(vector_spec(prefix + "w1.bias", ffn, Split::kFfnColumns, kBandColumns));
    specs.push_back(vector_spec(prefix + "w3.bias", ffn, Split::kFfnColumns, kBandColumns));
    specs.push_back(replicated_vector(prefix + "w2.bias", config.hidden_size));
  }
}

void append_cross_specs(const LlamaConfig& config, std::int64_t layer,
                        std::vector<TensorSpec>& specs) {
  const std::string prefix = fmt::format("text.cross.{}.", layer);
  append_qkv_specs(config, prefix, specs);
  specs.push_back(replicated_vector(prefix + "q_norm", config.head_dim));
  specs.push_back(replicated_vector(prefix + "k_norm", config.head_dim));
  specs.push_back(attention_output_spec(config, prefix));
  specs.push_back(replicated_vector(prefix + "gate_attn", 1));
  append_ffn_specs(config, prefix, specs);
  specs.push_back(replicated_vector(prefix + "gate_ffn", 1));
}

enum class Gates { kNone, kBoth };

void append_encoder_layer_specs(const VisionConfig& vision, const std::string& prefix, Gates gates,
                                std::vector<TensorSpec>& specs) {
  const auto name = [&prefix](const char* part) { return prefix + part; };
  const std::int64_t d = vision.head_dim();
  const std::int64_t width = vision.width;
  const std::int64_t ffn = vision.ffn_size;
  specs.push_back(replicated_vector(name("norm1"), width));
  specs.push_back(replicated_vector(name("norm1.bias"), width));
  for (const char* part : {"wq", "wk", "wv"}) {
    specs.push_back(matrix_spec(name(part), width, width, Split::kVisionHeads, d));
  }
  specs.push_back(
      matrix_spec(name("wo"), width, width, Split::kVisionHeads, d, Layout::kTransposed));
  if (gates == Gates::kBoth) specs.push_back(replicated_vector(name("gate_attn"), 1));
  specs.push_back(replicated_vector(name("norm2"), width));
  specs.push_back(replicated_vector(name("norm2.bias"), width));
  specs.push_back(matrix_spec(name("w1"), ffn, width, Split::kVisionFfnColumns, kBandColumns));
  specs.push_back(vector_spec(name("w1.bias"), ffn, Split::kVisionFfnColumns, kBandColumns));
  specs.push_back(matrix_spec(name("w2"), ffn, width, Split::kVisionFfnColumns, kBandColumns,
                              Layout::kTransposed));
  specs.push_back(replicated_vector(name("w2.bias"), width));
  if (gates == Gates::kBoth) specs.push_back(replicated_vector(name("gate_ffn"), 1));
}

/// A matrix that every rank holds whole, checked in bands of 64 rows.
TensorSpec replicated_matrix(std::string name, std::int64_t rows, std::int64_t columns) {
  return matrix_spec(std::move(name), rows, columns, Split::kReplicated, kBandColumns);
}

void append_vision_specs(const LlamaConfig& config, std::vector<TensorSpec>& specs) {
  const VisionConfig& vision = *config.vision;
  const std::int64_t width = vision.width;
  const auto cells = static_cast<std::int64_t>(kTileCells.size());
  specs.push_back(
      replicated_matrix("text.embed_extra", vision.extra_embeddings, config.hidden_size));
  for (std::int64_t layer = 0; layer < vision.num_cross_layers(); ++layer) {
    append_cross_specs(config, layer, specs);
  }
  specs.push_back(replicated_matrix("vision.patch", width, vision.patch_elements()));
  specs.push_back(replicated_vector("vision.class", width));
  specs.push_back(replicated_matrix("vision.position", vision.tile_tokens(), width));
  specs.push_back(replicated_matrix("vision.position_tile", cells * vision.tile_tokens(), width));
  specs.push_back(replicated_vector("vision.position_gate", 1));
  specs.push_back(replicated_matrix("vision.pre_tile", cells, width));
  specs.push_back(replicated_vector("vision.pre_tile_gate", 1));
  specs.push_back(replicated_matrix("vision.post_tile", cells, width));
  specs.push_back(replicated_vector("vision.post_tile_gate", 1));
  for (const char* norm : {"vision.norm_pre", "vision.norm_post"}) {
    specs.push_back(replicated_vector(norm, width));
    specs.push_back(replicated_vector(fmt::format("{}.bias", norm), width));
  }
  for (std::int64_t layer = 0; layer < vision.num_local_layers; ++layer) {
    append_encoder_layer_specs(vision, fmt::format("vision.local.{}.", layer), Gates::kNone, specs);
  }
  for (std::int64_t layer = 0; layer < vision.num_global_layers; ++layer) {
    append_encoder_layer_specs(vision, fmt::format("vision.global.{}.", layer), Gates::kBoth,
                               specs);
  }
  specs.push_back(matrix_spec("vision.projector", config.hidden_size, vision.feature_size(),
                              Split::kHiddenRows, kBandColumns));
  specs.push_back(
      vector_spec("vision.projector.bias", config.hidden_size, Split::kHiddenRows, kBandColumns));
}

/// Deals items to the ranks as split_evenly does, but the ranks that get one more follow, around
/// the ring of ranks, those that got one more of what was dealt before: no rank carries the surplus
/// of everything.
class Dealer {
 public:
  Dealer(int rank, int num_ranks) : rank_(rank), num_ranks_(num_ranks) {}

  /// This rank's part of `total` items.
  Range deal(std::int64_t total) {
    const std::int64_t base = total / num_ranks_;
    const std::int64_t surplus = total % num_ranks_;
    const auto surplus_before = [&](std::int64_t rank) {  // of the ranks [0, rank)
      const std::int64_t straight =
          std::clamp<std::int64_t>(rank - next_, 0, std::min(surplus, num_ranks_ - next_));
      const std::int64_t around = std::clamp<std::int64_t>(next_ + surplus - num_ranks_, 0, rank);
      return straight + around;
    };
    const Range part{rank_ * base + surplus_before(rank_),
                     (rank_ + 1) * base + surplus_before(rank_ + 1)};
    next_ = (next_ + surplus) % num_ranks_;
    return part;
  }

  /// This rank's part of `total` items in bands of kBandColumns.
  Range deal_bands(std::int64_t total) {
    const Range bands = deal(ceil_div(total, kBandColumns));
    return {std::min(bands.begin * kBandColumns, total), std::min(bands.end * kBandColumns, total)};
  }

 private:
  std::int64_t rank_;
  std::int64_t num_ranks_;
  std::int64_t next_ = 0;  // the first rank that gets one more
};

}  // namespace

std::vector<TensorSpec> tensor_specs(const LlamaConfig& config) {
  std::vector<TensorSpec> specs;
  specs.push_back(matrix_spec("text.embed", config.vocab_size, config.hidden_size,
                              Split::kVocabulary, kBandColumns));
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    append_layer_specs(config, layer, specs);
  }
  specs.push_back(replicated_vector("text.final_norm", config.hidden_size));
  if (!config.tied_embeddings) {
    specs.push_back(matrix_spec("text.head", config.vocab_size, config.hidden_size,
                                Split::kVocabulary, kBandColumns));
  }
  if (config.vision) append_vision_specs(config, specs);
  return specs;
}

Range ShardShape::rows_of(const TensorSpec& spec, const LlamaConfig& config) const {
  switch (spec.split) {
    case Split::kReplicated: return {0, spec.rows};
    case Split::kQueryHeads:
      return {query_heads.begin * config.head_dim, query_heads.end * config.head_dim};
    case Split::kKvHeads: return {kv_heads.begin * config.head_dim, kv_heads.end * config.head_dim};
    case Split::kFfnColumns: return ffn_columns;
    case Split::kVocabulary: return vocab_rows;
    case Split::kHiddenRows: return hidden_rows;
    case Split::kVisionHeads: {
      const std::int64_t d = config.vision->head_dim();
      return {vision_heads.begin * d, vision_heads.end * d};
    }
    case Split::kVisionFfnColumns: return vision_ffn_columns;
  }
  throw_internal_error(__FILE__, __LINE__, "split", spec.name);
}

ShardShape shard_shape(const LlamaConfig& config, int rank, int num_ranks) {
  ShardShape shape;
  shape.rank = rank;
  shape.num_ranks = num_ranks;
  Dealer dealer(rank, num_ranks);
  shape.query_heads = dealer.deal(config.num_heads);
  if (!shape.query_heads.empty()) {
    const std::int64_t group = config.num_heads / config.num_kv_heads;
    shape.kv_heads = {shape.query_heads.begin / group, (shape.query_heads.end - 1) / group + 1};
  }
  shape.ffn_columns = dealer.deal_bands(config.ffn_size);
  shape.vocab_rows = dealer.deal_bands(config.vocab_size);
  if (config.vision) {
    shape.hidden_rows = dealer.deal_bands(config.hidden_size);
    shape.vision_heads = dealer.deal(config.vision->num_heads);
    shape.vision_ffn_columns = dealer.deal_bands(config.vision->ffn_size);
  }
  return shape;
}

std::vector<ShardShape> all_shard_shapes(const LlamaConfig& config, int num_ranks) {
  std::vector<ShardShape> shapes;
  for (int rank = 0; rank < num_ranks; ++rank) {
    shapes.push_back(shard_shape(config, rank, num_ranks));
  }
  return shapes;
}

std::int64_t num_attention_slices(const LlamaConfig& config) { return config.num_heads; }

std::int64_t num_ffn_slices(const LlamaConfig& config) {
  return ceil_div(config.ffn_size, kBandColumns);
}

std::int64_t num_vision_attention_slices(const LlamaConfig& config) {
  return config.vision->num_heads;
}

std::int64_t num_vision_ffn_slices(const LlamaConfig& config) {
  return ceil_div(config.vision->ffn_size, kBandColumns);
}

}  // namespace caravan::model
