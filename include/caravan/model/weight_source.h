#pragma once
// Where the decoder's weights come from: a checkpoint file (checkpoint/model_file.h) or, in tests,
// memory.

#include <cstdint>
#include <string>

#include "caravan/core/dtype.h"
#include "caravan/core/partition.h"
#include "caravan/model/shard_plan.h"

namespace caravan::model {

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  /// Stored type of a tensor: of a quantized matrix, which has several datasets (stored_parts.h),
  /// as a whole.
  /// @throws ConfigError if there is no such tensor.
  virtual DType dtype(const TensorSpec& spec) const = 0;

  /// Copies stored rows [rows.begin, rows.end) of `spec`, a tensor's own or that of a StoredPart,
  /// to `destination` (rows * columns stored elements). `rows` covers whole bands, whose checksums
  /// are verified.
  /// @throws IoError if reading fails; ConfigError if a checksum differs, with tensor, band and
  /// file.
  virtual void read_rows(const TensorSpec& spec, Range rows, void* destination) = 0;
};

}  // namespace caravan::model
