// y = x W^T over packed panels, plain and sliced (contract: caravan/ops/linear.h): packed inputs,
// and what one tile of the output does in one chunk of columns. linear_few_rows.inl and linear.inl
// run tiles over all of a product.
//
// Which chain an element belongs to: one FMA chain in increasing k for each slice, from zero; it
// continues through memory where the work is cut in k. Slices of a node are added like a binary
// counter: the sum of slice s (counted within its node) waits at level popcount(s) until its right
// sibling is there; level 0 is the output itself. So the order of additions depends on the node
// alone.

constexpr std::int64_t kDepthBlock = 256;  // columns whose weights are expanded at a time
constexpr std::int64_t kRowGroup = 96;     // rows that share an expansion
constexpr int kUnpackedRows = 4;           // up to here rows are read in place

/// Groups of rows, and the tiles inside each: sizes as equal as possible.
CARAVAN_INLINE std::int64_t num_groups(std::int64_t rows) { return parts_of(rows, kRowGroup); }

std::int64_t linear_packed_floats(const LinearArgs& args) {
  return args.rows > lesser(kUnpackedRows, kTileRows) ? args.rows * args.in : 0;
}

/// Width of a row of a waiting tile: outputs that are in flight together.
CARAVAN_INLINE std::int64_t stack_width(std::int64_t rows) {
  const std::int64_t vecs = rows <= kTileRows ? vecs_for_rows(static_cast<int>(rows)) : 2;
  return greater(vecs, 2) * 16;
}
CARAVAN_INLINE std::int64_t stack_rows(std::int64_t rows) { return lesser(rows, kRowGroup); }

std::int64_t linear_stack_floats(const LinearArgs& args) {
  return args.stack_levels * stack_rows(args.rows) * stack_width(args.rows);
}

template <int Rows>
void pack_tile(const LinearArgs& args, std::int64_t row, Span columns) {
  const float* source = args.x + row * args.x_stride;
  float* target = args.packed + row * args.in;
  for (std::int64_t k = columns.begin; k < columns.end; ++k) {
    CARAVAN_UNROLL for (int m = 0; m < Rows; ++m) {
      target[k * Rows + m] = source[m * args.x_stride + k];
    }
  }
}

/// Calls Function<Rows>::call(arguments...) for the run-time `rows` in [1, kTileRows].
template <template <int> class Function, int Rows = 1, class... Arguments>
CARAVAN_INLINE void with_rows(std::int64_t rows, const Arguments&... arguments) {
  if (rows == Rows) {
    Function<Rows>::call(arguments...);
  } else if constexpr (Rows < kTileRows) {
    with_rows<Function, Rows + 1>(rows, arguments...);
  }
}

template <int Rows>
struct PackTile {
  static void call(const LinearArgs& args, std::int64_t row, Span columns) {
    pack_tile<Rows>(args, row, columns);
  }
};

/// Packs each tile's rows as [in][tile rows], tile after tile. Threads share the columns.
void linear_pack(const LinearArgs& args, ThreadShare share) {
  const Span columns = part_of(args.in, share.count, share.index);
  const std::int64_t groups = num_groups(args.rows);
  for (std::int64_t g = 0; g < groups; ++g) {
    const Span group = part_of(args.rows, groups, g);
    const std::int64_t tiles = parts_of(group.end - group.begin, kTileRows);
    for (std::int64_t t = 0; t < tiles; ++t) {
      const Span tile = part_of(group.end - group.begin, tiles, t);
      with_rows<PackTile>(tile.end - tile.begin, args, group.begin + tile.begin, columns);
    }
  }
}

/// Weights expanded to float32: [k][kTileVecs * 16]. While they are used the next block of stored
/// weights is fetched.
struct ExpandedWeights {
  const float* base;
  const char* next;
  std::int64_t next_stride;
  CARAVAN_INLINE Vec at(std::int64_t k, int v) const {
    return load(base + k * (kTileVecs * 16) + v * 16);
  }
  CARAVAN_INLINE void prefetch_for(std::int64_t k) const { prefetch(next + k * next_stride); }
  CARAVAN_INLINE ExpandedWeights from(std::int64_t k) const {
    return {base + k * (kTileVecs * 16), next + k * next_stride, next_stride};
  }
};

/// Columns [begin, end) and the first slice and node that are not finished before them.
struct Chunk {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t slice = 0;
  std::int64_t node = 0;
};

CARAVAN_INLINE Chunk first_chunk(const LinearArgs& args, std::int64_t most) {
  return {0, lesser(most, args.in), 0, 0};
}

/// Whether slice s is finished when the columns before `end` are done; at the last column all are.
CARAVAN_INLINE bool finished(const LinearArgs& args, std::int64_t s, std::int64_t end) {
  return end == args.in || (args.slices[s].end <= end && args.slices[s].begin < end);
}

CARAVAN_INLINE Chunk next_chunk(const LinearArgs& args, const Chunk& chunk, std::int64_t most) {
  Chunk next{chunk.end, lesser(chunk.end + most, args.in), chunk.slice, chunk.node};
  while (next.slice < args.num_slices && finished(args, next.slice, chunk.end)) {
    next.slice += 1;
    if (args.first_slice + next.slice == args.nodes[next.node].slices.end) next.node += 1;
  }
  return next;
}

/// One tile of the output: rows from `row`, columns from `column`.
struct TileSite {
  std::int64_t row;
  std::int64_t column;
  float* stack;               // of this tile at level 1
  std::int64_t level_stride;  // floats from one level to the next
  std::int64_t stack_stride;  // floats from one row to the next
};

CARAVAN_INLINE Place place_of(const LinearArgs& args, const TileSite& site, std::int64_t node,
                              int level) {
  if (level == 0) {
    return {args.y + node * args.y_node_stride + site.row * args.y_stride + site.column,
            args.y_stride, args.out - site.column};
  }
  return {site.stack + (level - 1) * site.level_stride, site.stack_stride, kPanelWidth * 8};
}

/// All slices (or pieces of them) of one chunk for one tile.
template <int Rows, int Vecs, class Weights, class Inputs>
CARAVAN_INLINE void run_tile(const LinearArgs& args, const Chunk& chunk, const TileSite& site,
                             const Weights& weights, const Inputs& inputs) {
  std::int64_t node = chunk.node;
  for (std::int64_t s = chunk.slice; s < args.num_slices; ++s) {
    const std::int64_t slice_begin = args.slices[s].begin;
    const std::int64_t slice_end = args.slices[s].end;
    if (slice_begin >= chunk.end && chunk.end != args.in) break;
    const std::int64_t begin = greater(slice_begin, chunk.begin);
    const std::int64_t end = lesser(slice_end, chunk.end);
    const auto in_node =
        static_cast<std::uint64_t>(args.first_slice + s - args.nodes[node].slices.begin);
    int level = __builtin_popcountll(in_node);

    Tile<Rows, Vecs> tile;
    if (begin == slice_begin) {
      clear(tile);
    } else {
      load_tile(place_of(args, site, node, level), tile);
    }
    multiply(tile, end - begin, weights.from(begin - chunk.begin), inputs.from(begin));
    const bool last_of_node = args.first_slice + s + 1 == args.nodes[node].slices.end;
    if (end == slice_end) {
      const int merges = last_of_node ? level : __builtin_ctzll(~in_node);
      for (int i = 0; i < merges; ++i) add_to_tile(place_of(args, site, node, --level), tile);
      if (last_of_node && args.bias != nullptr) add_bias(args, site.column, tile);
    }
    store_tile(place_of(args, site, node, level), tile);
    if (end < slice_end) break;
    if (last_of_node) node += 1;
  }
}
