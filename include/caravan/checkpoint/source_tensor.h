#pragma once
// One tensor of a source checkpoint, by place and encoding, and reading a rectangle of it as
// float32.

#include <cstdint>
#include <string>
#include <vector>

#include "caravan/checkpoint/element_type.h"
#include "caravan/core/partition.h"
#include "caravan/io/input_file.h"

namespace caravan::checkpoint {

struct SourceTensor {
  std::string name;  // in the source
  ElementType type = ElementType::kF32;
  std::vector<std::int64_t> shape;  // torch's order, row-major
  std::int64_t file = 0;            // index into the source's files
  std::int64_t offset = 0;          // bytes from the start of the file
  std::int64_t bytes = 0;
};

/// Product of the extents.
/// @throws InputError if one is not positive, or the product or its bytes exceed 2^62.
std::int64_t checked_elements(const std::vector<std::int64_t>& shape, const std::string& where);

/// Bytes of `elements` elements in rows of `columns`.
/// @throws InputError if a row is not a number of whole blocks.
std::int64_t checked_bytes(ElementType type, std::int64_t elements, std::int64_t columns,
                           const std::string& where);

/// Elements [rows) x [columns) of a matrix as float32, row-major. A vector is one row.
/// @throws IoError.
void read_rectangle(io::InputFile& file, const SourceTensor& tensor, Range rows, Range columns,
                    float* destination);

}  // namespace caravan::checkpoint
