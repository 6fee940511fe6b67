#pragma once
// Writes a Caravan checkpoint (format version 1): HDF5 lays out the tensors, rows are then written
// to their places in any order and by any number of threads.
//
// Leaves out: where rows come from (convert.h), and the temporary name (io/atomic_file.h).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "caravan/checkpoint/model_file.h"
#include "caravan/model/stored_parts.h"

namespace caravan::checkpoint {

struct TensorToWrite {
  TensorToWrite(const model::TensorSpec& its_spec, DType its_dtype)
      : spec(its_spec), dtype(its_dtype), parts(model::stored_parts(its_spec, its_dtype)) {}
  model::TensorSpec spec;
  DType dtype;
  std::vector<model::StoredPart> parts;  // its datasets
  std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const model::StoredPart& part : parts) sum += part.bytes();
    return sum;
  }
};

class ModelWriter {
 public:
  /// Creates the file `path`, replacing one of that name, with room for all tensors.
  /// @param tensors  all of tensor_specs() in that order; borrowed as long as this object lives
  /// @throws IoError here and below, with path and cause (disk full ...).
  ModelWriter(const std::string& path, std::span<const TensorToWrite> tensors);
  ~ModelWriter();
  ModelWriter(const ModelWriter&) = delete;
  ModelWriter& operator=(const ModelWriter&) = delete;

  /// Whole bands of a part of tensor `index` from its stored row `first_row` on. Any thread.
  void write_bands(std::size_t index, std::size_t part, std::int64_t first_row,
                   std::span<const std::byte> rows);

  /// Writes checksums and description, fills in its content_hash, closes the file.
  /// @pre every band was written once.
  void finish(ModelDescription& description);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace caravan::checkpoint
