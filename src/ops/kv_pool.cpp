#include "caravan/ops/kv_pool.h"

#include <cstring>

#include "caravan/core/error.h"
#include "caravan/core/partition.h"
#include "caravan/ops/packed_weight.h"

namespace caravan::ops {
namespace {

std::int64_t padded(std::int64_t head_dim) { return round_up(head_dim, 16); }

std::int64_t key_elements(const KvPool::Shape& shape) {
  return shape.local_kv_heads * shape.head_dim * KvPool::kBlockTokens;
}

std::int64_t value_elements(const KvPool::Shape& shape) {
  return shape.local_kv_heads * padded(shape.head_dim) * KvPool::kBlockTokens;
}

}  // namespace

KvPool::KvPool(const Shape& shape) : shape_(shape), padded_head_dim_(padded(shape.head_dim)) {
  CARAVAN_ASSERT(shape.num_layers >= 0 && shape.num_blocks >= 0 && shape.local_kv_heads >= 0 &&
                     shape.head_dim > 0 &&
                     (shape.dtype == DType::kFloat32 || shape.dtype == DType::kBFloat16),
                 "a cache of {} layers, {} blocks, {} heads of {} in {}", shape.num_layers,
                 shape.num_blocks, shape.local_kv_heads, shape.head_dim, dtype_name(shape.dtype));
  storage_ = allocate_huge(block_bytes(shape) * shape.num_blocks);
}

void* KvPool::key_data(std::int64_t layer) const {
  CARAVAN_ASSERT(layer >= 0 && layer < shape_.num_layers, "layer {} of {}", layer,
                 shape_.num_layers);
  return static_cast<std::byte*>(storage_.data_ptr()) +
         layer * (key_elements(shape_) + value_elements(shape_)) * element_bytes(shape_.dtype);
}

void* KvPool::value_data(std::int64_t layer) const {
  return static_cast<std::byte*>(key_data(layer)) +
         key_elements(shape_) * element_bytes(shape_.dtype);
}

float* KvPool::keys(std::int64_t layer) const {
  CARAVAN_ASSERT(shape_.dtype == DType::kFloat32, "a cache of {}", dtype_name(shape_.dtype));
  return static_cast<float*>(key_data(layer));
}

float* KvPool::values(std::int64_t layer) const {
  CARAVAN_ASSERT(shape_.dtype == DType::kFloat32, "a cache of {}", dtype_name(shape_.dtype));
  return static_cast<float*>(value_data(layer));
}

std::int64_t KvPool::key_block_stride() const {
  return block_bytes(shape_) / element_bytes(shape_.dtype);
}

std::int64_t KvPool::value_block_stride() const { return key_block_stride(); }

void KvPool::copy_block(std::int64_t source, std::int64_t target) {
  CARAVAN_ASSERT(source >= 0 && source < shape_.num_blocks && target >= 0 &&
                     target < shape_.num_blocks && source != target,
                 "cannot copy block {} to {} of {}", source, target, shape_.num_blocks);
  const std::int64_t bytes = block_bytes(shape_);
  auto* const base = static_cast<std::byte*>(storage_.data_ptr());
  if (bytes > 0) {
    std::memcpy(base + target * bytes, base + source * bytes, static_cast<std::size_t>(bytes));
  }
}

std::int64_t KvPool::block_bytes(const Shape& shape) {
  return shape.num_layers * (key_elements(shape) + value_elements(shape)) *
         element_bytes(shape.dtype);
}

}  // namespace caravan::ops
