// Cutting work into parts, and the width of a panel of weights.

constexpr std::int64_t kPanelWidth = 32;  // PackedWeight::kPanel

struct Span {
  std::int64_t begin;
  std::int64_t end;
};

/// Part `index` of `total` in `parts` nearly equal parts, the larger ones first.
CARAVAN_INLINE Span part_of(std::int64_t total, std::int64_t parts, std::int64_t index) {
  const std::int64_t base = total / parts;
  const std::int64_t larger = total % parts;
  const std::int64_t begin = index * base + lesser(index, larger);
  return {begin, begin + base + (index < larger ? 1 : 0)};
}
CARAVAN_INLINE std::int64_t parts_of(std::int64_t total, std::int64_t most) {
  return (total + most - 1) / most;
}
