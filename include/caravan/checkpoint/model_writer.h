#pragma once
// Writes a Caravan checkpoint (format version 1) tensor by tensor, rows in order, in a thread of
// its own: the caller reads and encodes meanwhile.
//
// Leaves out: where rows come from (convert.h), and the temporary name (io/atomic_file.h).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "caravan/checkpoint/model_file.h"

namespace caravan::checkpoint {

class ModelWriter {
 public:
  /// Creates the file `path`, replacing one of that name.
  /// @throws IoError here and below, with path and HDF5's text (disk full ...); a failure of the
  /// writing thread is thrown by a later call, finish() at the latest.
  explicit ModelWriter(const std::string& path);
  ~ModelWriter();
  ModelWriter(const ModelWriter&) = delete;
  ModelWriter& operator=(const ModelWriter&) = delete;

  /// Begins the next tensor. @pre the one before has all its rows.
  void begin_tensor(const model::TensorSpec& spec, DType dtype);
  /// The next rows of the tensor, in its dtype, any number of whole rows.
  void append_rows(std::vector<std::byte> rows);

  /// Writes the description, fills in its content_hash, closes the file.
  /// @pre all tensors of tensor_specs(description.config) were written, in that order.
  void finish(ModelDescription& description);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace caravan::checkpoint
