// Products of any number of rows: many rows share what is expanded of the weights.

template <int Rows>
struct ExpandedTile {
  static void call(const LinearArgs& args, const Chunk& chunk, const TileSite& site,
                   const ExpandedWeights& weights) {
    const PackedInputs<Rows> inputs{args.packed + site.row * args.in};
    run_tile<Rows, kTileVecs>(args, chunk, site, weights, inputs);
  }
};

/// Columns of one panel as float32: [panel half, where a tile has half a panel][k][tile width].
template <class Element>
void expand_block(const Element* source, std::int64_t depth, float* target) {
  if constexpr (kTileVecs == 2) {
    expand(source, depth, WholeRows{target});
  } else {
    expand(source, depth, HalfRows{target, kDepthBlock * 16});
  }
}

/// Many rows: one panel and one group of rows. Each block of weights is expanded once, then used by
/// every tile of the group.
template <class Element>
void run_group(const LinearArgs& args, Span group, std::int64_t panel, float* stack) {
  constexpr int kHalves = 2 / kTileVecs;
  alignas(64) float expanded[kDepthBlock * kPanelWidth];
  const std::int64_t rows = group.end - group.begin;
  const std::int64_t tiles = parts_of(rows, kTileRows);
  const std::int64_t width = stack_width(args.rows);
  Chunk chunk = first_chunk(args, kDepthBlock);
  while (true) {
    expand_block(at_column<Element>(args.weights, panel, args.in, chunk.begin),
                 chunk.end - chunk.begin, expanded);
    const char* next =
        reinterpret_cast<const char*>(at_column<Element>(args.weights, panel, args.in, chunk.end));
    for (int half = 0; half < kHalves; ++half) {
      for (std::int64_t t = 0; t < tiles; ++t) {
        const Span tile = part_of(rows, tiles, t);
        const bool first = half == 0 && t == 0;
        const ExpandedWeights source{
            expanded + half * kDepthBlock * (kTileVecs * 16), next,
            first ? Stored<Element>::kBytes / Stored<Element>::kColumns : 0};
        const int offset = half * kTileVecs * 16;
        const TileSite site{group.begin + tile.begin, panel * kPanelWidth + offset,
                            stack + tile.begin * width + offset, stack_rows(args.rows) * width,
                            width};
        with_rows<ExpandedTile>(tile.end - tile.begin, args, chunk, site, source);
      }
    }
    if (chunk.end == args.in) break;
    chunk = next_chunk(args, chunk, kDepthBlock);
  }
}

/// Threads share (row group, panel) pairs, panels of one group next to each other.
template <class Element>
void run_many_rows(const LinearArgs& args, float* stack, ThreadShare share) {
  const std::int64_t panels = parts_of(args.out, kPanelWidth);
  const std::int64_t groups = num_groups(args.rows);
  const Span items = part_of(groups * panels, share.count, share.index);
  for (std::int64_t item = items.begin; item < items.end; ++item) {
    run_group<Element>(args, part_of(args.rows, groups, item / panels), item % panels, stack);
  }
}

void linear(const LinearArgs& args, ThreadShare share) {
  float* stack = args.stacks + share.index * linear_stack_floats(args);
  if (args.rows <= kTileRows) {
    with_rows<FewRows>(args.rows, args, stack, share);
    return;
  }
  switch (args.dtype) {
    case DType::kFloat32: return run_many_rows<float>(args, stack, share);
    case DType::kBFloat16: return run_many_rows<BFloat16>(args, stack, share);
    case DType::kFloat16: return run_many_rows<Float16>(args, stack, share);
    case DType::kInt8: return run_many_rows<Int8Group>(args, stack, share);
    case DType::kInt4: return run_many_rows<Int4Group>(args, stack, share);
  }
}
