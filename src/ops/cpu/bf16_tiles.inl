// bf16 products with AMX tiles: two by two tiles of 16 x 16 sums. What the instruction computes is
// in bf16_chains.inl; here nothing depends on the thread's settings.
//
// Tiles 0 to 3: sums, [row half][column half]; 4, 5: inputs of the row halves; 6, 7: weights of
// the column halves.

constexpr std::int64_t kTileSide = 16;
constexpr std::int64_t kBlockRows = 2 * kTileSide;
/// Packed floats of one row and run: 32 bf16.
constexpr std::int64_t kRunFloats = kRunColumns / 2;

/// Whole tiles, but for products that fill less than one.
CARAVAN_INLINE std::int64_t padded_rows(std::int64_t rows, std::int64_t all_rows) {
  if (all_rows < kTileSide) return all_rows;
  return rows <= kTileSide ? kTileSide : kBlockRows;
}

/// One run of one row into its block: [tile][tile row][32].
CARAVAN_INLINE void store_run(const std::uint16_t* values, std::int64_t row, std::int64_t,
                              float* block) {
  __builtin_memcpy(block + row * kRunFloats, values, kRunColumns * 2);
}

/// 16 values of which the upper halves are their bf16 bits, as round_to_bf16: by integers, since
/// VCVTNEPS2BF16 takes subnormal numbers as zero before it rounds.
CARAVAN_INLINE __m512i round_lanes(const float* x) {
  const __m512 value = _mm512_loadu_ps(x);
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i carry = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  return _mm512_mask_blend_epi32(nan, _mm512_add_epi32(bits, carry), quiet);
}

/// A whole run of one row, from float32 into its block.
CARAVAN_INLINE void pack_run(const float* x, std::int64_t row, std::int64_t, float* block) {
  const __m512i odd_halves = _mm512_add_epi16(
      _mm512_set1_epi16(1),
      _mm512_slli_epi16(_mm512_set_epi16(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17,
                                         16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                        1));
  const __m512i both = _mm512_permutex2var_epi16(round_lanes(x), odd_halves, round_lanes(x + 16));
  _mm512_storeu_si512(block + row * kRunFloats, both);
}

/// How the tile registers are shaped, as LDTILECFG reads it.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

// The compiler does not know what tile instructions read and write in memory.
CARAVAN_INLINE void memory_barrier() { __asm__ volatile("" ::: "memory"); }

constexpr std::int64_t kPanelRowBytes = kPanelWidth * 4;  // of sums, and of pairs of weights

CARAVAN_INLINE void fetch_next(const RunBlock& block, std::int64_t run) {
  for (std::int64_t i = 0; i < block.next_lines; ++i) {
    prefetch_far(block.next + (run * block.next_lines + i) * 64);
  }
}

/// Up to 16 rows.
__attribute__((noinline)) void run_one_tile_row(const RunBlock& block) {
  memory_barrier();
  if (block.continues) {
    _tile_loadd(0, block.sums, kPanelRowBytes);
    _tile_loadd(1, block.sums + kTileSide, kPanelRowBytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
  }
  const float* inputs = block.inputs;
  for (std::int64_t run = 0; run < block.num_runs; ++run) {
    const BFloat16* weights = block.weights[run];
    _tile_loadd(4, inputs, kRunColumns * 2);
    _tile_loadd(6, weights, kPanelRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, weights + kPanelWidth, kPanelRowBytes);
    _tile_dpbf16ps(1, 4, 7);
    fetch_next(block, run);
    inputs += block.rows * kRunFloats;
  }
  _tile_stored(0, block.sums, kPanelRowBytes);
  _tile_stored(1, block.sums + kTileSide, kPanelRowBytes);
  memory_barrier();
}

/// 32 rows.
__attribute__((noinline)) void run_two_tile_rows(const RunBlock& block) {
  memory_barrier();
  float* const lower = block.sums + kTileSide * kPanelWidth;
  if (block.continues) {
    _tile_loadd(0, block.sums, kPanelRowBytes);
    _tile_loadd(1, block.sums + kTileSide, kPanelRowBytes);
    _tile_loadd(2, lower, kPanelRowBytes);
    _tile_loadd(3, lower + kTileSide, kPanelRowBytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const float* inputs = block.inputs;
  for (std::int64_t run = 0; run < block.num_runs; ++run) {
    const BFloat16* weights = block.weights[run];
    _tile_loadd(4, inputs, kRunColumns * 2);
    _tile_loadd(6, weights, kPanelRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, weights + kPanelWidth, kPanelRowBytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, inputs + kTileSide * kRunFloats, kRunColumns * 2);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    fetch_next(block, run);
    inputs += kBlockRows * kRunFloats;
  }
  _tile_stored(0, block.sums, kPanelRowBytes);
  _tile_stored(1, block.sums + kTileSide, kPanelRowBytes);
  _tile_stored(2, lower, kPanelRowBytes);
  _tile_stored(3, lower + kTileSide, kPanelRowBytes);
  memory_barrier();
}

/// Shapes this thread's tile registers while it lives. Released at the end, so that the system
/// need not save 8 KiB at each change of threads.
class BlockUnit {
 public:
  explicit BlockUnit(const LinearArgs& args) {
    const std::int64_t rows = lesser(args.rows, kTileSide);
    TileShapes shapes;
    for (int tile = 0; tile < 8; ++tile) {
      const bool has_rows_of_product = tile == 0 || tile == 1 || tile == 4;
      shapes.row_bytes[tile] = 64;
      shapes.rows[tile] = static_cast<std::uint8_t>(has_rows_of_product ? rows : kTileSide);
    }
    memory_barrier();
    _tile_loadconfig(&shapes);
  }
  ~BlockUnit() { _tile_release(); }
  BlockUnit(const BlockUnit&) = delete;
  BlockUnit& operator=(const BlockUnit&) = delete;

  void multiply(const RunBlock& block) const {
    if (block.rows <= kTileSide) {
      run_one_tile_row(block);
    } else {
      run_two_tile_rows(block);
    }
  }
};

/// As many as leave half of a second-level cache of 2 MiB to weights and sums.
CARAVAN_INLINE std::int64_t blocks_per_group(std::int64_t runs) {
  constexpr std::int64_t kBudgetBytes = std::int64_t{1} << 20;
  return greater(6, kBudgetBytes / greater(1, runs * kBlockRows * kRunColumns * 2));
}
