// Types of stored weight elements, and inlining that does not depend on the optimiser's budget: a
// register tile must live in registers.

#define CARAVAN_INLINE inline __attribute__((always_inline))
#define CARAVAN_UNROLL _Pragma("GCC unroll 16")

struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

CARAVAN_INLINE std::int64_t lesser(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
CARAVAN_INLINE std::int64_t greater(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
