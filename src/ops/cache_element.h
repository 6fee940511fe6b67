#pragma once
// Elements of the key/value cache as they are written. Private to src/ops.

#include <cstdint>

#include "caravan/core/dtype.h"
#include "caravan/ops/kv_pool.h"

namespace caravan::ops {

/// Calls use(element) with a value of the type that a cache element has in memory.
template <typename Use>
void with_cache_element(const KvPool& pool, const Use& use) {
  if (pool.shape().dtype == DType::kFloat32) {
    use(float{});
  } else {
    use(std::uint16_t{});
  }
}

inline void store_element(float value, float& target) { target = value; }
inline void store_element(float value, std::uint16_t& target) { target = float_to_bf16(value); }

}  // namespace caravan::ops
