// What the tile instruction TDPBF16PS computes, by FMA instructions of any width: the same bits.
//
// For each run and output: one chain over the even columns and one over the odd, both from zero;
// even + odd; the sum so far + that. Every step rounds to nearest even, takes subnormal operands
// as zero and gives zero for subnormal results, whatever the thread's settings are (Intel SDM,
// TDPBF16PS). Here the settings do it.

constexpr std::int64_t kBlockRows = kChainRows;
/// Packed floats of one row and run: [16 pairs][even, odd], expanded.
constexpr std::int64_t kRunFloats = kRunColumns;

CARAVAN_INLINE std::int64_t padded_rows(std::int64_t rows, std::int64_t) { return rows; }

/// One run of one row into its block: [column][rows].
CARAVAN_INLINE void store_run(const std::uint16_t* values, std::int64_t row, std::int64_t rows,
                              float* block) {
  for (std::int64_t k = 0; k < kRunColumns; ++k) {
    const std::uint32_t bits = static_cast<std::uint32_t>(values[k]) << 16;
    __builtin_memcpy(block + k * rows + row, &bits, sizeof(bits));
  }
}

/// A whole run of one row, from float32 into its block.
CARAVAN_INLINE void pack_run(const float* x, std::int64_t row, std::int64_t rows, float* block) {
  std::uint16_t values[kRunColumns];
  for (std::int64_t k = 0; k < kRunColumns; ++k) values[k] = round_to_bf16(x[k]);
  store_run(values, row, rows, block);
}

template <int Rows>
struct ChainTile {
  static void call(const RunBlock& block) {
    for (std::int64_t first = 0; first < kPanelWidth; first += kChainVecs * 16) {
      for (std::int64_t run = 0; run < block.num_runs; ++run) {
        const BFloat16* weights = block.weights[run] + first * 2;
        const float* inputs = block.inputs + run * Rows * kRunFloats;
        Tile<Rows, kChainVecs> even;
        Tile<Rows, kChainVecs> odd;
        clear(even);
        clear(odd);
        for (int pair = 0; pair < kRunColumns / 2; ++pair) {
          Vec even_weights[kChainVecs];
          Vec odd_weights[kChainVecs];
          CARAVAN_UNROLL for (int v = 0; v < kChainVecs; ++v) {
            even_weights[v] = load_even(weights + v * 32);
            odd_weights[v] = load_odd(weights + v * 32);
          }
          CARAVAN_UNROLL for (int m = 0; m < Rows; ++m) {
            const Vec even_input = broadcast(inputs[m]);
            const Vec odd_input = broadcast(inputs[Rows + m]);
            CARAVAN_UNROLL for (int v = 0; v < kChainVecs; ++v) {
              even.sum[m][v] = fma(even_input, even_weights[v], even.sum[m][v]);
              odd.sum[m][v] = fma(odd_input, odd_weights[v], odd.sum[m][v]);
            }
          }
          weights += kPanelWidth * 2;
          inputs += Rows * 2;
        }
        CARAVAN_UNROLL for (int m = 0; m < Rows; ++m) {
          CARAVAN_UNROLL for (int v = 0; v < kChainVecs; ++v) {
            float* sum = block.sums + m * kPanelWidth + first + v * 16;
            const Vec before = run == 0 && !block.continues ? zero() : load(sum);
            store(sum, add(before, add(even.sum[m][v], odd.sum[m][v])));
          }
        }
        if (first == 0) {
          for (std::int64_t i = 0; i < block.next_lines; ++i) {
            prefetch(block.next + (run * block.next_lines + i) * 64);
          }
        }
      }
    }
  }
};

template <int Rows = 1>
CARAVAN_INLINE void with_chain_rows(const RunBlock& block) {
  if (block.rows == Rows) {
    ChainTile<Rows>::call(block);
  } else if constexpr (Rows < kChainRows) {
    with_chain_rows<Rows + 1>(block);
  }
}

// Not inlined, so that no arithmetic moves across the change of settings.
__attribute__((noinline)) void run_chains(const RunBlock& block) { with_chain_rows(block); }

class BlockUnit {
 public:
  explicit BlockUnit(const LinearArgs&) {}
  void multiply(const RunBlock& block) const {
    constexpr unsigned kFlushResults = 0x8000;
    constexpr unsigned kZeroOperands = 0x0040;
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | kFlushResults | kZeroOperands);
    run_chains(block);
    _mm_setcsr(before);
  }
};

/// Groups of rows that the packed inputs of a product are used in.
CARAVAN_INLINE std::int64_t blocks_per_group(std::int64_t) { return 96 / kBlockRows; }
