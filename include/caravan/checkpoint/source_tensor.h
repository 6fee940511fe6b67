#pragma once
// One tensor of a source checkpoint, by place and encoding, and reading a rectangle of it as
// float32 or as it is.

#include <cstddef>
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
  /// Elements from one index to the next along each extent; empty: row-major without gaps.
  std::vector<std::int64_t> strides;
  /// Not empty: the tensor is these, joined along `join_axis` (model-parallel files). They have the
  /// same type; file, offset and bytes above mean nothing then.
  std::vector<SourceTensor> parts;
  std::size_t join_axis = 0;
};

/// Product of the extents.
/// @throws InputError if one is not positive, or the product or its bytes exceed 2^62.
std::int64_t checked_elements(const std::vector<std::int64_t>& shape, const std::string& where);

/// Bytes of `elements` elements in rows of `columns`.
/// @throws InputError if a row is not a number of whole blocks.
std::int64_t checked_bytes(ElementType type, std::int64_t elements, std::int64_t columns,
                           const std::string& where);

/// One tensor made of `parts`, which are of equal shape but for the extent along `axis`.
/// @throws InputError naming the parts that differ in type or shape.
SourceTensor joined(std::vector<SourceTensor> parts, std::size_t axis, const std::string& where);

/// Elements [rows) x [columns) of a matrix as float32, row-major. A vector is one row.
/// @throws IoError.
void read_rectangle(std::vector<io::InputFile>& files, const SourceTensor& tensor, Range rows,
                    Range columns, float* destination);
/// The same for a tensor that lies in one file.
void read_rectangle(io::InputFile& file, const SourceTensor& tensor, Range rows, Range columns,
                    float* destination);

/// The same without a conversion: the elements' own bytes. Any number of threads at a time, as
/// above. @pre a plain (not quantized) type.
void read_raw_rectangle(std::vector<io::InputFile>& files, const SourceTensor& tensor, Range rows,
                        Range columns, std::byte* destination);

/// Whole rows of a quantized matrix as the blocks that the file holds.
void read_blocks(std::vector<io::InputFile>& files, const SourceTensor& tensor, Range rows,
                 std::byte* destination);

/// Lets the system read these rows already where they adjoin in one file. A hint.
void prefetch_rows(const std::vector<io::InputFile>& files, const SourceTensor& tensor, Range rows);

/// Whether two tensors have the same shape and values (float32, so that -0 equals 0).
/// @throws IoError.
bool same_values(std::vector<io::InputFile>& files, const SourceTensor& first,
                 const SourceTensor& second);

}  // namespace caravan::checkpoint
