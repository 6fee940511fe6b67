#include "tile_peak.h"

#include <immintrin.h>

#include <cstdint>

namespace {

constexpr int kRounds = 4000;

struct alignas(64) TileShapes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

}  // namespace

void run_tile_products() {
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) {
    shapes.row_bytes[tile] = 64;
    shapes.rows[tile] = 16;
  }
  __asm__ volatile("" ::: "memory");
  _tile_loadconfig(&shapes);
  for (int i = 0; i < kRounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}

double tile_product_flop() { return 4.0 * kRounds * 2 * 16 * 16 * 32; }
