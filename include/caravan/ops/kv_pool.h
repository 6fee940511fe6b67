#pragma once
// The key/value cache: per layer one pool of blocks, each a run of kBlockTokens positions of one
// sequence.
//
// Layout: [block][layer][keys, then values]; keys [head][d][token] (so that a score is a chain over
// d for 16 tokens at once), values [head][token][d padded to 16]. Elements
// are float32, or bf16 (rounded to nearest even, expanded where they are read). All layers of a
// block lie together, so that memory in use follows the number of blocks used so far, also with
// huge pages: pages are touched when a block is used first, and stay. Who owns which block is
// decided elsewhere (engine/block_allocator), which takes unused ones before it gives up a kept
// prefix.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "caravan/core/dtype.h"

namespace caravan::ops {

class KvPool {
 public:
  static constexpr std::int64_t kBlockTokens = 16;

  struct Shape {
    std::int64_t num_layers = 0;
    std::int64_t num_blocks = 0;
    std::int64_t local_kv_heads = 0;  // of this rank; may be 0
    std::int64_t head_dim = 0;
    DType dtype = DType::kFloat32;  // or bf16
  };

  explicit KvPool(const Shape& shape);

  const Shape& shape() const { return shape_; }
  /// head_dim rounded up to 16: width of a value row.
  std::int64_t padded_head_dim() const { return padded_head_dim_; }
  void* key_data(std::int64_t layer) const;
  void* value_data(std::int64_t layer) const;
  /// The same of a float32 cache.
  float* keys(std::int64_t layer) const;
  float* values(std::int64_t layer) const;
  /// Elements from one block to the next in keys(layer) and in values(layer).
  std::int64_t key_block_stride() const;
  std::int64_t value_block_stride() const;

  /// Copies block `source` to `target` in all layers (copy on write of a shared prefix).
  void copy_block(std::int64_t source, std::int64_t target);

  /// Bytes that one block costs this rank, all layers.
  static std::int64_t block_bytes(const Shape& shape);

 private:
  Shape shape_;
  std::int64_t padded_head_dim_ = 0;
  at::Tensor storage_;
};

}  // namespace caravan::ops
