#include "caravan/checkpoint/source_tensor.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"

namespace caravan::checkpoint {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 58;
constexpr std::int64_t kComparedElements = std::int64_t{1} << 20;  // of each tensor at once
constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;        // read and decoded at once

// What is wanted of a tensor, and where it goes.
struct Rectangle {
  Range rows;
  Range columns;
  std::byte* destination = nullptr;
  std::int64_t row_bytes = 0;      // from one row of the destination to the next
  std::int64_t element_bytes = 0;  // of the destination
  bool raw = false;                // the tensor's own bytes rather than float32

  std::byte* row(std::int64_t index) const { return destination + index * row_bytes; }
};

// A vector is one row; of more than two extents all but the last count rows.
std::int64_t num_rows(const SourceTensor& tensor) {
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
  return rows;
}

// The element types of Rectangle::destination are float or, raw, bytes: `values` is aligned.
float* as_floats(std::byte* values) { return reinterpret_cast<float*>(values); }

// Whole rows that follow each other in the file.
void read_whole_rows(io::InputFile& file, const SourceTensor& tensor, const Rectangle& wanted) {
  const BlockLayout layout = block_layout(tensor.type);
  const std::int64_t columns = wanted.columns.size();
  const std::int64_t file_row_bytes = columns / layout.elements * layout.bytes;
  if (wanted.raw && wanted.row_bytes == file_row_bytes) {
    file.read(tensor.offset + wanted.rows.begin * file_row_bytes,
              {wanted.destination, checked_cast<std::size_t>(wanted.rows.size() * file_row_bytes)});
    return;
  }
  // In pieces, which are decoded while they are in the cache.
  const std::int64_t piece_rows =
      std::min(std::max<std::int64_t>(kPieceBytes / file_row_bytes, 1), wanted.rows.size());
  std::vector<std::byte> bytes(checked_cast<std::size_t>(piece_rows * file_row_bytes));
  for (std::int64_t row = 0; row < wanted.rows.size(); row += piece_rows) {
    const std::int64_t count = std::min(piece_rows, wanted.rows.size() - row);
    file.read(tensor.offset + (wanted.rows.begin + row) * file_row_bytes,
              std::span(bytes.data(), static_cast<std::size_t>(count * file_row_bytes)));
    for (std::int64_t i = 0; i < count; ++i) {
      const std::span<const std::byte> from(bytes.data() + i * file_row_bytes,
                                            static_cast<std::size_t>(file_row_bytes));
      std::byte* to = wanted.row(row + i);
      if (wanted.raw) {
        std::copy(from.begin(), from.end(), to);
      } else {
        decode_blocks(tensor.type, from, {as_floats(to), static_cast<std::size_t>(columns)});
      }
    }
  }
}

// Part of each row: the blocks that hold it, of which the wanted elements are kept. `row_bytes` is
// the distance of rows in the file.
void read_row_pieces(io::InputFile& file, const SourceTensor& tensor, const Rectangle& wanted,
                     std::int64_t row_bytes) {
  const BlockLayout layout = block_layout(tensor.type);
  const Range blocks = {wanted.columns.begin / layout.elements,
                        ceil_div(wanted.columns.end, layout.elements)};
  const std::int64_t skipped = wanted.columns.begin - blocks.begin * layout.elements;
  std::vector<std::byte> bytes(checked_cast<std::size_t>(blocks.size() * layout.bytes));
  std::vector<float> values(
      wanted.raw ? 0 : checked_cast<std::size_t>(blocks.size() * layout.elements));
  for (std::int64_t i = 0; i < wanted.rows.size(); ++i) {
    const std::int64_t offset =
        tensor.offset + (wanted.rows.begin + i) * row_bytes + blocks.begin * layout.bytes;
    if (wanted.raw) {
      file.read(offset, {wanted.row(i), bytes.size()});
      continue;
    }
    file.read(offset, bytes);
    decode_blocks(tensor.type, bytes, values);
    std::copy_n(values.data() + skipped, wanted.columns.size(), as_floats(wanted.row(i)));
  }
}

// A matrix that is stored column after column (a transposed view), of a plain type.
void read_by_columns(io::InputFile& file, const SourceTensor& tensor, const Rectangle& wanted) {
  const std::int64_t element = block_layout(tensor.type).bytes;
  std::vector<std::byte> bytes(checked_cast<std::size_t>(wanted.rows.size() * element));
  std::vector<float> values(checked_cast<std::size_t>(wanted.rows.size()));
  for (std::int64_t i = 0; i < wanted.columns.size(); ++i) {
    const std::int64_t column = wanted.columns.begin + i;
    file.read(tensor.offset + (column * tensor.strides[1] + wanted.rows.begin) * element, bytes);
    const std::byte* from = bytes.data();
    if (!wanted.raw) {
      decode_blocks(tensor.type, bytes, values);
      from = reinterpret_cast<const std::byte*>(values.data());
    }
    for (std::int64_t row = 0; row < wanted.rows.size(); ++row) {
      std::memcpy(wanted.row(row) + i * wanted.element_bytes, from + row * wanted.element_bytes,
                  static_cast<std::size_t>(wanted.element_bytes));
    }
  }
}

void read_from_file(io::InputFile& file, const SourceTensor& tensor, const Rectangle& wanted) {
  const std::int64_t row_elements = tensor.shape.back();
  CARAVAN_ASSERT(wanted.rows.begin >= 0 && wanted.rows.end <= num_rows(tensor) &&
                     wanted.columns.begin >= 0 && wanted.columns.end <= row_elements &&
                     !wanted.columns.empty(),
                 "rows [{}, {}) and columns [{}, {}) of {}", wanted.rows.begin, wanted.rows.end,
                 wanted.columns.begin, wanted.columns.end, tensor.name);
  const BlockLayout layout = block_layout(tensor.type);
  if (!tensor.strides.empty()) {
    CARAVAN_ASSERT(tensor.strides.size() == 2 && layout.elements == 1, "strides of {}",
                   tensor.name);
    if (tensor.strides[1] == 1) {
      read_row_pieces(file, tensor, wanted, tensor.strides[0] * layout.bytes);
    } else {
      CARAVAN_ASSERT(tensor.strides[0] == 1, "strides of {}", tensor.name);
      read_by_columns(file, tensor, wanted);
    }
  } else if (wanted.columns.size() == row_elements) {
    read_whole_rows(file, tensor, wanted);
  } else {
    read_row_pieces(file, tensor, wanted, row_elements / layout.elements * layout.bytes);
  }
}

// The share of each part that has some of the rectangle.
void read_parts(std::vector<io::InputFile>& files, const SourceTensor& tensor,
                const Rectangle& wanted) {
  if (tensor.parts.empty()) {
    read_from_file(files[checked_cast<std::size_t>(tensor.file)], tensor, wanted);
    return;
  }
  const bool by_rows = tensor.shape.size() == 2 && tensor.join_axis == 0;
  const Range& range = by_rows ? wanted.rows : wanted.columns;
  std::int64_t begin = 0;
  for (const SourceTensor& part : tensor.parts) {
    const std::int64_t extent = part.shape[tensor.join_axis];
    const Range inside = {std::max(range.begin - begin, std::int64_t{0}),
                          std::min(range.end - begin, extent)};
    if (!inside.empty()) {
      Rectangle share = wanted;
      (by_rows ? share.rows : share.columns) = inside;
      share.destination += (begin + inside.begin - range.begin) *
                           (by_rows ? wanted.row_bytes : wanted.element_bytes);
      read_parts(files, part, share);
    }
    begin += extent;
  }
}

Rectangle float_rectangle(Range rows, Range columns, float* destination) {
  constexpr std::int64_t kBytes = sizeof(float);
  return {rows, columns, reinterpret_cast<std::byte*>(destination), columns.size() * kBytes,
          kBytes};
}

}  // namespace

std::int64_t checked_elements(const std::vector<std::int64_t>& shape, const std::string& where) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) {
    CARAVAN_CHECK(extent > 0 && !__builtin_mul_overflow(elements, extent, &elements) &&
                      elements <= kMaxElements,
                  InputError, "{} has the impossible shape [{}]", where, fmt::join(shape, ", "));
  }
  return elements;
}

std::int64_t checked_bytes(ElementType type, std::int64_t elements, std::int64_t columns,
                           const std::string& where) {
  const BlockLayout layout = block_layout(type);
  CARAVAN_CHECK(columns % layout.elements == 0, InputError,
                "{} has rows of {} elements, expected whole blocks of {} for {}", where, columns,
                layout.elements, element_type_name(type));
  return elements / layout.elements * layout.bytes;  // at most 2^58 * 8
}

SourceTensor joined(std::vector<SourceTensor> parts, std::size_t axis, const std::string& where) {
  CARAVAN_ASSERT(!parts.empty() && axis < parts[0].shape.size(), "{} parts, axis {}", parts.size(),
                 axis);
  SourceTensor whole = {parts[0].name, parts[0].type, parts[0].shape};
  whole.shape[axis] = 0;
  for (const SourceTensor& part : parts) {
    std::vector<std::int64_t> expected = parts[0].shape;
    if (part.shape.size() == expected.size()) expected[axis] = part.shape[axis];
    CARAVAN_CHECK(part.shape == expected && part.type == whole.type, InputError,
                  "{}: the shares of {} do not fit together: {} [{}] and {} [{}]", where,
                  whole.name, element_type_name(whole.type), fmt::join(parts[0].shape, ", "),
                  element_type_name(part.type), fmt::join(part.shape, ", "));
    whole.shape[axis] += part.shape[axis];
  }
  checked_elements(whole.shape, where + ": " + whole.name);
  if (parts.size() == 1) return std::move(parts[0]);
  whole.parts = std::move(parts);
  whole.join_axis = axis;
  return whole;
}

void read_rectangle(std::vector<io::InputFile>& files, const SourceTensor& tensor, Range rows,
                    Range columns, float* destination) {
  read_parts(files, tensor, float_rectangle(rows, columns, destination));
}

void read_rectangle(io::InputFile& file, const SourceTensor& tensor, Range rows, Range columns,
                    float* destination) {
  CARAVAN_ASSERT(tensor.parts.empty(), "{} lies in several files", tensor.name);
  read_from_file(file, tensor, float_rectangle(rows, columns, destination));
}

void read_raw_rectangle(std::vector<io::InputFile>& files, const SourceTensor& tensor, Range rows,
                        Range columns, std::byte* destination) {
  CARAVAN_ASSERT(!is_quantized(tensor.type), "{} is of type {}", tensor.name,
                 element_type_name(tensor.type));
  const std::int64_t bytes = block_layout(tensor.type).bytes;
  read_parts(files, tensor, {rows, columns, destination, columns.size() * bytes, bytes, true});
}

void read_blocks(std::vector<io::InputFile>& files, const SourceTensor& tensor, Range rows,
                 std::byte* destination) {
  CARAVAN_ASSERT(is_quantized(tensor.type) && tensor.parts.empty(), "{} is of type {}", tensor.name,
                 element_type_name(tensor.type));
  const BlockLayout layout = block_layout(tensor.type);
  const std::int64_t columns = tensor.shape.back();
  read_parts(files, tensor,
             {rows, {0, columns}, destination, columns / layout.elements * layout.bytes, 0, true});
}

void prefetch_rows(const std::vector<io::InputFile>& files, const SourceTensor& tensor,
                   Range rows) {
  if (!tensor.parts.empty() || !tensor.strides.empty() || tensor.shape.size() != 2) return;
  const BlockLayout layout = block_layout(tensor.type);
  const std::int64_t row_bytes = tensor.shape[1] / layout.elements * layout.bytes;
  files[checked_cast<std::size_t>(tensor.file)].prefetch(tensor.offset + rows.begin * row_bytes,
                                                         rows.size() * row_bytes);
}

bool same_values(std::vector<io::InputFile>& files, const SourceTensor& first,
                 const SourceTensor& second) {
  if (first.shape != second.shape) return false;
  const std::int64_t columns = first.shape.back();
  const std::int64_t rows = num_rows(first);
  const std::int64_t strip = std::max<std::int64_t>(kComparedElements / columns, 1);
  std::vector<float> a(checked_cast<std::size_t>(std::min(strip, rows) * columns));
  std::vector<float> b(a.size());
  for (std::int64_t row = 0; row < rows; row += strip) {
    const Range range = {row, std::min(row + strip, rows)};
    read_rectangle(files, first, range, {0, columns}, a.data());
    read_rectangle(files, second, range, {0, columns}, b.data());
    if (!std::equal(a.begin(), a.begin() + range.size() * columns, b.begin())) return false;
  }
  return true;
}

}  // namespace caravan::checkpoint
