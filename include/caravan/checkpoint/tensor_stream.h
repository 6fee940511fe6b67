#pragma once
// Streams the tensors of a source into the writer: canonical row order, stored layout and type, in
// strips of bounded size, by several threads.

#include <cstdint>
#include <span>

#include "caravan/checkpoint/model_writer.h"
#include "caravan/checkpoint/source.h"

namespace caravan::checkpoint {

/// Strip sizes; small in tests so that every border is met.
struct StreamLimits {
  /// Stored bytes that a thread reads, turns and writes at once; one band at least.
  std::int64_t strip_bytes = std::int64_t{4} << 20;
};

/// Writes all bands of all `tensors`. Memory: the largest of the tensors that are stored
/// transposed, and some strips of every thread.
/// @throws InputError naming tensor, row and column of a value that cannot be stored; IoError; what
/// `written` throws.
void stream_tensors(Source& source, std::span<const TensorToWrite> tensors, ModelWriter& writer,
                    const StreamLimits& limits, const BytesDone& written);

}  // namespace caravan::checkpoint
