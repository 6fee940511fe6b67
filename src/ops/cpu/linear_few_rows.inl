// Products of few rows, one tile: weights stream by once, several panels at a time.

// How far ahead weights that are read in place are fetched: hardware prefetch alone leaves a
// product of 8 rows at 60 % of the speed.
constexpr std::int64_t kPrefetchColumns = 16;
// Columns of quantized weights that are expanded at a time: with the panels in flight they stay in
// the nearest cache.
constexpr std::int64_t kFewRowsDepth = 64;

/// Weights as stored: [panel][k][32], read in place.
template <class Element, int Vecs>
struct PanelWeights {
  const Element* base;  // of the first vector, at column 0 of the run
  std::int64_t panel_stride;
  CARAVAN_INLINE Vec at(std::int64_t k, int v) const {
    return load(base + (v / 2) * panel_stride + k * kPanelWidth + (v % 2) * 16);
  }
  CARAVAN_INLINE void prefetch_for(std::int64_t k) const {
    CARAVAN_UNROLL for (int panel = 0; panel < (Vecs + 1) / 2; ++panel) {
      prefetch(base + panel * panel_stride + (k + kPrefetchColumns) * kPanelWidth);
    }
  }
  CARAVAN_INLINE PanelWeights from(std::int64_t k) const {
    return {base + k * kPanelWidth, panel_stride};
  }
};

/// Weights expanded for few rows: panels of [k][32] one after the other.
struct ExpandedPanels {
  const float* base;
  CARAVAN_INLINE Vec at(std::int64_t k, int v) const {
    return load(base + (v / 2) * (kFewRowsDepth * kPanelWidth) + k * kPanelWidth + (v % 2) * 16);
  }
  CARAVAN_INLINE void prefetch_for(std::int64_t) const {}
  CARAVAN_INLINE ExpandedPanels from(std::int64_t k) const { return {base + k * kPanelWidth}; }
};

template <int Rows, int Vecs, class Weights>
CARAVAN_INLINE void run_few_tile(const LinearArgs& args, const Chunk& chunk, const TileSite& site,
                                 const Weights& weights) {
  if constexpr (Rows <= kUnpackedRows) {
    run_tile<Rows, Vecs>(args, chunk, site, weights, RowInputs{args.x, args.x_stride});
  } else {
    run_tile<Rows, Vecs>(args, chunk, site, weights, PackedInputs<Rows>{args.packed});
  }
}

/// Tiles narrower than a panel: the second half of each chunk comes from the nearest cache.
template <int Vecs>
constexpr int kTileHalves = Vecs == 1 ? 2 : 1;

template <int Vecs>
CARAVAN_INLINE TileSite few_rows_site(const LinearArgs& args, float* stack, std::int64_t panel,
                                      int half) {
  const std::int64_t width = stack_width(args.rows);
  return {0, panel * kPanelWidth + half * 16, stack + half * 16, stack_rows(args.rows) * width,
          width};
}

/// Few rows (one tile): weights are read once, straight from memory, several panels at a time.
template <int Rows, int Vecs, class Element>
void run_panels(const LinearArgs& args, float* stack, std::int64_t panel) {
  const std::int64_t most = kTileHalves<Vecs> == 1 ? args.in : kDepthBlock;
  Chunk chunk = first_chunk(args, most);
  while (true) {
    const auto* weights = at_column<Element>(args.weights, panel, args.in, chunk.begin);
    for (int half = 0; half < kTileHalves<Vecs>; ++half) {
      const PanelWeights<Element, Vecs> source{weights + half * 16, args.in * kPanelWidth};
      run_few_tile<Rows, Vecs>(args, chunk, few_rows_site<Vecs>(args, stack, panel, half), source);
    }
    if (chunk.end == args.in) break;
    chunk = next_chunk(args, chunk, most);
  }
}

/// Expands a chunk of `count` panels: [panel][kFewRowsDepth][32].
template <class Group>
void expand_panels(const LinearArgs& args, const Chunk& chunk, std::int64_t panel, int count,
                   float* expanded) {
  for (int p = 0; p < count; ++p) {
    expand(at_column<Group>(args.weights, panel + p, args.in, chunk.begin), chunk.end - chunk.begin,
           WholeRows{expanded + p * kFewRowsDepth * kPanelWidth});
  }
}

/// The same with quantized weights, by way of the nearest cache.
template <int Rows, int Vecs>
void run_quantized_panels(const LinearArgs& args, float* stack, std::int64_t panel) {
  constexpr int kPanels = (Vecs + 1) / 2;
  alignas(64) float expanded[kPanels * kFewRowsDepth * kPanelWidth];
  Chunk chunk = first_chunk(args, kFewRowsDepth);
  while (true) {
    if (args.dtype == DType::kInt8) {
      expand_panels<Int8Group>(args, chunk, panel, kPanels, expanded);
    } else {
      expand_panels<Int4Group>(args, chunk, panel, kPanels, expanded);
    }
    for (int half = 0; half < kTileHalves<Vecs>; ++half) {
      run_few_tile<Rows, Vecs>(args, chunk, few_rows_site<Vecs>(args, stack, panel, half),
                               ExpandedPanels{expanded + half * 16});
    }
    if (chunk.end == args.in) break;
    chunk = next_chunk(args, chunk, kFewRowsDepth);
  }
}

/// Weights of either quantized type.
struct AnyGroup {};
template <class Element>
constexpr bool kIsAnyGroup = false;
template <>
constexpr bool kIsAnyGroup<AnyGroup> = true;

template <int Rows, int Vecs, class Element>
CARAVAN_INLINE void run_few_panels(const LinearArgs& args, float* stack, std::int64_t panel) {
  if constexpr (kIsAnyGroup<Element>) {
    run_quantized_panels<Rows, Vecs>(args, stack, panel);
  } else {
    run_panels<Rows, Vecs, Element>(args, stack, panel);
  }
}

template <int Rows, class Element>
void run_few_rows(const LinearArgs& args, float* stack, ThreadShare share) {
  constexpr int kVecs = vecs_for_rows(Rows);
  const Span panels = part_of(parts_of(args.out, kPanelWidth), share.count, share.index);
  std::int64_t panel = panels.begin;
  if constexpr (kVecs > 2) {
    for (; panel + kVecs / 2 <= panels.end; panel += kVecs / 2) {
      run_few_panels<Rows, kVecs, Element>(args, stack, panel);
    }
  }
  for (; panel < panels.end; ++panel) {
    run_few_panels < Rows, kVecs<2 ? kVecs : 2, Element>(args, stack, panel);
  }
}

template <int Rows>
struct FewRows {
  static void call(const LinearArgs& args, float* stack, ThreadShare share) {
    switch (args.dtype) {
      case DType::kFloat32: return run_few_rows<Rows, float>(args, stack, share);
      case DType::kBFloat16: return run_few_rows<Rows, BFloat16>(args, stack, share);
      case DType::kFloat16: return run_few_rows<Rows, Float16>(args, stack, share);
      case DType::kInt8:
      case DType::kInt4: return run_few_rows<Rows, AnyGroup>(args, stack, share);
    }
  }
};
