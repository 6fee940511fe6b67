#pragma once
// Transposition of elements of 2 or 4 bytes.

#include <cstddef>
#include <cstdint>

namespace caravan::checkpoint {

/// A matrix [rows, columns], row-major with `stride` elements from one row to the next.
struct MatrixView {
  const std::byte* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;
};

/// Writes the transpose, [columns, rows] without gaps, to `destination`.
/// @pre element_bytes is 1, 2 or 4.
void transpose(const MatrixView& source, std::int64_t element_bytes, std::byte* destination);

}  // namespace caravan::checkpoint
