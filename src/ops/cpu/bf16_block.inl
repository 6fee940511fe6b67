// The unit of work of bf16 products: some rows times one panel, over some runs of 32 columns.
//
// A run is 32 consecutive columns of a slice, counted from the slice's first; the last run of a
// slice is filled up with zeros on both sides. Everything works on whole runs, so what lies beside
// a slice, on this rank or another, never enters it.

constexpr std::int64_t kRunColumns = 32;

struct RunBlock {
  const float* inputs;             // packed, at the first run
  std::int64_t rows;               // as packed, which may be more than there are
  const BFloat16* const* weights;  // of each run: [16][32][2]
  std::int64_t num_runs;
  bool continues;  // `sums` holds what earlier runs gave, else it is only written
  float* sums;     // [rows][32]
  // What comes next, to be fetched meanwhile.
  const char* next;
  std::int64_t next_lines;  // for each run
};

/// bf16 bits, nearest even, as caravan/core/dtype.h has it.
CARAVAN_INLINE std::uint16_t round_to_bf16(float value) {
  std::uint32_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  const std::uint32_t quiet = (bits >> 16) | 0x40U;
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  return static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
}
