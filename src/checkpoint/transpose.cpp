#include "transpose.h"

#include <algorithm>
#include <cstring>

#include "caravan/core/error.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace caravan::checkpoint {
namespace {

// Tiles whose rows are one cache line, or two, on both sides.
constexpr std::int64_t kTile = 32;

template <typename Element>
void transpose_elements(const MatrixView& source, std::byte* destination,
                        std::int64_t destination_stride) {
  constexpr std::int64_t kBytes = sizeof(Element);
  for (std::int64_t column = 0; column < source.columns; ++column) {
    for (std::int64_t row = 0; row < source.rows; ++row) {
      std::memcpy(destination + (column * destination_stride + row) * kBytes,
                  source.data + (row * source.stride + column) * kBytes, sizeof(Element));
    }
  }
}

template <typename Element>
void transpose_tile(const MatrixView& tile, std::byte* destination,
                    std::int64_t destination_stride) {
  transpose_elements<Element>(tile, destination, destination_stride);
}

#if defined(__SSE2__)

constexpr std::int64_t kSquare = 8;  // 16-bit elements of a register

// Three rounds of interleaving rows i and i + 4 turn 8 x 8 elements.
void transpose_square(const std::byte* source, std::int64_t source_stride, std::byte* destination,
                      std::int64_t destination_stride) {
  __m128i rows[kSquare];
  for (std::int64_t i = 0; i < kSquare; ++i) {
    rows[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i * source_stride * 2));
  }
  for (int round = 0; round < 3; ++round) {
    __m128i next[kSquare];
    for (int i = 0; i < kSquare / 2; ++i) {
      next[2 * i] = _mm_unpacklo_epi16(rows[i], rows[i + kSquare / 2]);
      next[2 * i + 1] = _mm_unpackhi_epi16(rows[i], rows[i + kSquare / 2]);
    }
    std::copy(std::begin(next), std::end(next), std::begin(rows));
  }
  for (std::int64_t i = 0; i < kSquare; ++i) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(destination + i * destination_stride * 2), rows[i]);
  }
}

template <>
void transpose_tile<std::uint16_t>(const MatrixView& tile, std::byte* destination,
                                   std::int64_t destination_stride) {
  if (tile.rows % kSquare != 0 || tile.columns % kSquare != 0) {
    transpose_elements<std::uint16_t>(tile, destination, destination_stride);
    return;
  }
  for (std::int64_t column = 0; column < tile.columns; column += kSquare) {
    for (std::int64_t row = 0; row < tile.rows; row += kSquare) {
      transpose_square(tile.data + (row * tile.stride + column) * 2, tile.stride,
                       destination + (column * destination_stride + row) * 2, destination_stride);
    }
  }
}

#endif

template <typename Element>
void transpose_by_tiles(const MatrixView& source, std::byte* destination) {
  constexpr std::int64_t kBytes = sizeof(Element);
  for (std::int64_t column = 0; column < source.columns; column += kTile) {
    for (std::int64_t row = 0; row < source.rows; row += kTile) {
      const MatrixView tile = {source.data + (row * source.stride + column) * kBytes,
                               std::min(kTile, source.rows - row),
                               std::min(kTile, source.columns - column), source.stride};
      transpose_tile<Element>(tile, destination + (column * source.rows + row) * kBytes,
                              source.rows);
    }
  }
}

}  // namespace

void transpose(const MatrixView& source, std::int64_t element_bytes, std::byte* destination) {
  CARAVAN_ASSERT(element_bytes == 1 || element_bytes == 2 || element_bytes == 4,
                 "elements of {} bytes", element_bytes);
  if (element_bytes == 1) {
    transpose_by_tiles<std::uint8_t>(source, destination);
  } else if (element_bytes == 2) {
    transpose_by_tiles<std::uint16_t>(source, destination);
  } else {
    transpose_by_tiles<std::uint32_t>(source, destination);
  }
}

}  // namespace caravan::checkpoint
