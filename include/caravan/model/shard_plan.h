#pragma once
// Which part of each weight a rank owns: the one table of the sharding scheme, and the arithmetic
// of it.
//
// Query heads, 64-column runs of the feed-forward width and 64-row runs of the vocabulary are
// spread as evenly as possible over any number of ranks; a rank holds the KV heads that its query
// heads need (a KV head may live on several ranks). Nothing else in the program divides by the rank
// count.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "caravan/core/partition.h"
#include "caravan/model/config.h"

namespace caravan::model {

/// Columns of the feed-forward width, and rows of the vocabulary, in one band (the unit that one
/// rank owns whole).
inline constexpr std::int64_t kBandColumns = 64;

/// How a tensor is cut over the ranks of a tensor-parallel group.
enum class Split {
  kReplicated,        // whole on every rank
  kQueryHeads,        // band = head_dim rows, one per query head
  kKvHeads,           // band = head_dim rows, one per KV head
  kFfnColumns,        // band = 64 rows of the feed-forward width
  kVocabulary,        // band = 64 rows of the vocabulary
  kHiddenRows,        // band = 64 outputs of the width (the image projector)
  kVisionHeads,       // band = the encoder's head_dim rows
  kVisionFfnColumns,  // band = 64 rows of the encoder's feed-forward width
};

/// Role of a tensor in the model, and its canonical shape. Stored with the split axis first:
/// matrices that are row-parallel (wo, w2) are stored transposed, [in, out].
struct TensorSpec {
  std::string name;       // canonical: "text.layer.3.wq"
  std::int64_t rows = 0;  // stored shape [rows, columns]; columns 1 for vectors (stored [rows])
  std::int64_t columns = 1;
  bool is_vector = false;
  bool transposed = false;  // stored as the transpose of torch's [out, in]
  Split split = Split::kReplicated;
  std::int64_t band_rows = 0;  // rows per band; the last band may be shorter
  std::int64_t num_bands() const { return ceil_div(rows, band_rows); }
  std::int64_t num_elements() const { return rows * columns; }
};

/// Every tensor of the model, in file order: embedding, layers, final norm, head unless tied; then
/// those of the vision part: extra embeddings, cross-attention layers, encoder, projector.
std::vector<TensorSpec> tensor_specs(const LlamaConfig& config);

/// This rank's sizes and ranges. All names starting with `local_` are per rank; ranges index the
/// global model.
struct ShardShape {
  int rank = 0;
  int num_ranks = 1;
  Range query_heads;
  Range kv_heads;  // the KV heads those query heads read
  Range ffn_columns;
  Range vocab_rows;
  // Of models with vision, else empty.
  Range hidden_rows;  // outputs of the projector
  Range vision_heads;
  Range vision_ffn_columns;
  std::int64_t local_num_heads() const { return query_heads.size(); }
  std::int64_t local_num_kv_heads() const { return kv_heads.size(); }
  std::int64_t local_ffn_size() const { return ffn_columns.size(); }
  std::int64_t local_vocab_size() const { return vocab_rows.size(); }

  /// Stored rows of `spec` that this rank reads (all of them when replicated).
  Range rows_of(const TensorSpec& spec, const LlamaConfig& config) const;
};

/// @pre 0 <= rank < num_ranks. Any number of ranks is legal; surplus ranks own nothing.
ShardShape shard_shape(const LlamaConfig& config, int rank, int num_ranks);
std::vector<ShardShape> all_shard_shapes(const LlamaConfig& config, int num_ranks);

/// Slices of the two row-parallel products: attention output (one per query head) and feed-forward
/// (64 columns).
std::int64_t num_attention_slices(const LlamaConfig& config);
std::int64_t num_ffn_slices(const LlamaConfig& config);
/// Likewise of the vision encoder's layers. @pre config.vision
std::int64_t num_vision_attention_slices(const LlamaConfig& config);
std::int64_t num_vision_ffn_slices(const LlamaConfig& config);

}  // namespace caravan::model
