#pragma once
// Streams one tensor of a source into the writer: canonical row order, stored layout and type, in
// strips of bounded size.

#include <cstdint>
#include <functional>

#include "caravan/checkpoint/model_writer.h"
#include "caravan/checkpoint/source.h"

namespace caravan::checkpoint {

/// Strip sizes; small in tests so that every border is met.
struct StreamLimits {
  std::int64_t strip_elements = std::int64_t{4} << 20;  // float32 values of the source at once
  std::int64_t block_bytes = std::int64_t{32} << 20;  // stored rows of a transposed tensor at once
};

/// Told the bytes that were written since the last call.
using BytesWritten = std::function<void(std::int64_t)>;

/// Begins the tensor in `writer` and appends all its rows.
/// @throws InputError naming tensor, row and column of a value that cannot be stored; IoError.
void stream_tensor(Source& source, const model::TensorSpec& spec, DType dtype, ModelWriter& writer,
                   const StreamLimits& limits, const BytesWritten& written);

}  // namespace caravan::checkpoint
