#pragma once
// Checks of what attention and the cache write are told about heads and sequences. Private to
// src/ops.

#include <cstdint>
#include <span>

#include "caravan/ops/attention.h"

namespace caravan::ops {

/// @throws InternalError unless the map fits itself and the pool.
void check_heads(const HeadMap& heads, const KvPool& pool, const char* operation);

/// @throws InternalError unless the rows lie in [0, num_rows) and every block table is long
/// enough and names blocks of the pool.
void check_sequences(std::span<const SequenceRows> sequences, std::int64_t num_rows,
                     const KvPool& pool, const char* operation);

}  // namespace caravan::ops
