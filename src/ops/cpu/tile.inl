// The register tile that linear and attention share: Rows x Vecs vectors of sums, one FMA chain in
// increasing k for each lane.

template <int Rows, int Vecs>
struct Tile {
  Vec sum[Rows][Vecs];
};

template <int Rows, int Vecs>
CARAVAN_INLINE void clear(Tile<Rows, Vecs>& tile) {
  CARAVAN_UNROLL for (int m = 0; m < Rows; ++m) {
    CARAVAN_UNROLL for (int v = 0; v < Vecs; ++v) tile.sum[m][v] = zero();
  }
}

/// Inputs of a tile packed together: [k][Rows].
template <int Rows>
struct PackedInputs {
  const float* base;
  CARAVAN_INLINE float at(std::int64_t k, int row) const { return base[k * Rows + row]; }
  CARAVAN_INLINE PackedInputs from(std::int64_t k) const { return {base + k * Rows}; }
};

/// Inputs of a tile in separate rows.
struct RowInputs {
  const float* base;
  std::int64_t stride;
  CARAVAN_INLINE float at(std::int64_t k, int row) const { return base[row * stride + k]; }
  CARAVAN_INLINE RowInputs from(std::int64_t k) const { return {base + k, stride}; }
};

/// sum[m][v] = fma(input(k, m), weights(k, v), sum[m][v]) for k = 0, 1, ...
template <int Rows, int Vecs, class Weights, class Inputs>
CARAVAN_INLINE void multiply(Tile<Rows, Vecs>& tile, std::int64_t depth, const Weights& weights,
                             const Inputs& inputs) {
  for (std::int64_t k = 0; k < depth; ++k) {
    weights.prefetch_for(k);
    Vec weight[Vecs];
    CARAVAN_UNROLL for (int v = 0; v < Vecs; ++v) weight[v] = weights.at(k, v);
    CARAVAN_UNROLL for (int m = 0; m < Rows; ++m) {
      const Vec input = broadcast(inputs.at(k, m));
      CARAVAN_UNROLL for (int v = 0; v < Vecs; ++v) {
        tile.sum[m][v] = fma(input, weight[v], tile.sum[m][v]);
      }
    }
  }
}

/// A tile's place in memory: rows `stride` apart, of which only `columns` columns exist.
struct Place {
  float* base;
  std::int64_t stride;
  std::int64_t columns;
};

template <int Rows, int Vecs>
CARAVAN_INLINE void load_tile(const Place& place, Tile<Rows, Vecs>& tile) {
  const bool whole = place.columns >= Vecs * 16;
  CARAVAN_UNROLL for (int m = 0; m < Rows; ++m) {
    CARAVAN_UNROLL for (int v = 0; v < Vecs; ++v) {
      const float* source = place.base + m * place.stride + v * 16;
      const std::int64_t left = place.columns - v * 16;
      tile.sum[m][v] = whole ? load(source) : left > 0 ? load_partial(source, left) : zero();
    }
  }
}

/// left + tile, where the left operand is in memory.
template <int Rows, int Vecs>
CARAVAN_INLINE void add_to_tile(const Place& left, Tile<Rows, Vecs>& tile) {
  Tile<Rows, Vecs> other;
  load_tile(left, other);
  CARAVAN_UNROLL for (int m = 0; m < Rows; ++m) {
    CARAVAN_UNROLL for (int v = 0; v < Vecs; ++v) {
      tile.sum[m][v] = add(other.sum[m][v], tile.sum[m][v]);
    }
  }
}

template <int Rows, int Vecs>
CARAVAN_INLINE void store_tile(const Place& place, const Tile<Rows, Vecs>& tile) {
  const bool whole = place.columns >= Vecs * 16;
  CARAVAN_UNROLL for (int m = 0; m < Rows; ++m) {
    CARAVAN_UNROLL for (int v = 0; v < Vecs; ++v) {
      float* target = place.base + m * place.stride + v * 16;
      const std::int64_t left = place.columns - v * 16;
      if (whole) {
        store(target, tile.sum[m][v]);
      } else if (left > 0) {
        store_partial(target, tile.sum[m][v], left);
      }
    }
  }
}

template <int Rows, int Vecs>
CARAVAN_INLINE void add_bias(const LinearArgs& args, std::int64_t column, Tile<Rows, Vecs>& tile) {
  Tile<1, Vecs> bias;
  load_tile(Place{const_cast<float*>(args.bias) + column, 0, args.out - column}, bias);
  CARAVAN_UNROLL for (int m = 0; m < Rows; ++m) {
    CARAVAN_UNROLL for (int v = 0; v < Vecs; ++v) {
      tile.sum[m][v] = add(tile.sum[m][v], bias.sum[0][v]);
    }
  }
}
