// Attention of a few queries over the blocks of one KV head (contract: caravan/ops/attention.h).
//
// Chains: a score is one FMA chain over d, times the scale; the denominator is 16 lanes (position
// mod 16) that add in block order, then the fixed fold; an output element is one FMA chain over
// positions, times 1 / denominator. A query never reads a position that it does not see: what it
// computes beyond is masked before use. Elements of a bf16 cache are expanded as they are loaded.

/// Keys of several blocks: lane = position in the block.
template <int Vecs, class Element>
struct KeyWeights {
  const Element* block[Vecs];
  CARAVAN_INLINE Vec at(std::int64_t k, int v) const { return load(block[v] + k * 16); }
  CARAVAN_INLINE void prefetch_for(std::int64_t) const {}
};

/// Values of one block: lane = element of the head.
template <class Element>
struct ValueWeights {
  const Element* base;
  std::int64_t stride;
  CARAVAN_INLINE Vec at(std::int64_t k, int v) const { return load(base + k * stride + v * 16); }
  CARAVAN_INLINE void prefetch_for(std::int64_t) const {}
};

template <class Element>
CARAVAN_INLINE const Element* key_block(const AttentionTile& tile, std::int64_t block) {
  return static_cast<const Element*>(tile.keys) + tile.blocks[block] * tile.key_block_stride;
}
template <class Element>
CARAVAN_INLINE const Element* value_block(const AttentionTile& tile, std::int64_t block) {
  return static_cast<const Element*>(tile.values) + tile.blocks[block] * tile.value_block_stride;
}

template <int Rows>
void pack_queries(const AttentionTile& tile) {
  for (std::int64_t d = 0; d < tile.head_dim; ++d) {
    CARAVAN_UNROLL for (int m = 0; m < Rows; ++m) {
      tile.query_scratch[d * Rows + m] = tile.queries[m][d];
    }
  }
}

/// Scores of blocks [block, block + Vecs).
template <int Rows, int Vecs, class Element>
CARAVAN_INLINE void score_blocks(const AttentionTile& tile, std::int64_t block) {
  KeyWeights<Vecs, Element> keys;
  CARAVAN_UNROLL for (int v = 0; v < Vecs; ++v) {
    keys.block[v] = key_block<Element>(tile, block + v);
  }
  Tile<Rows, Vecs> sums;
  clear(sums);
  multiply(sums, tile.head_dim, keys, PackedInputs<Rows>{tile.query_scratch});
  const Vec scale = broadcast(tile.scale);
  CARAVAN_UNROLL for (int m = 0; m < Rows; ++m) {
    CARAVAN_UNROLL for (int v = 0; v < Vecs; ++v) {
      store(tile.scores + m * tile.score_stride + (block + v) * 16, mul(sums.sum[m][v], scale));
    }
  }
}

/// Adds the bias of each run to its scores and masks what lies between the end of a run and the
/// block that starts the next one.
void apply_runs(const AttentionTile& tile) {
  std::int64_t begin = 0;
  for (std::int64_t r = 0; r < tile.num_runs; ++r) {
    const Vec bias = broadcast(tile.runs[r].score_bias);
    const std::int64_t whole = tile.runs[r].tokens / 16 * 16;
    const std::int64_t rest = tile.runs[r].tokens - whole;
    for (int m = 0; m < tile.count; ++m) {
      float* const scores = tile.scores + m * tile.score_stride + begin;
      for (std::int64_t t = 0; t < whole; t += 16) store(scores + t, add(load(scores + t), bias));
      if (rest > 0) {
        const Vec last = add(load(scores + whole), bias);
        store(scores + whole, keep_first(last, rest, -__builtin_inff()));
      }
    }
    begin += rest > 0 ? whole + 16 : whole;
  }
}

/// Replaces the scores of one query by exp(score - maximum); returns 1 / denominator.
CARAVAN_INLINE float softmax_row(float* scores, std::int64_t visible) {
  constexpr float kNone = -__builtin_inff();
  const std::int64_t whole = visible / 16 * 16;
  const std::int64_t rest = visible - whole;
  Vec greatest = broadcast(kNone);
  for (std::int64_t t = 0; t < whole; t += 16) greatest = max(load(scores + t), greatest);
  if (rest > 0) {
    const Vec masked = keep_first(load(scores + whole), rest, kNone);
    store(scores + whole, masked);
    greatest = max(masked, greatest);
  }
  const Vec shift = broadcast(fold_max(greatest));
  Vec denominator = zero();
  for (std::int64_t t = 0; t < visible; t += 16) {
    const Vec weight = exp_of(sub(load(scores + t), shift));
    store(scores + t, weight);
    denominator = add(denominator, weight);
  }
  return 1.0F / fold_sum(denominator);
}

/// Output columns [column, column + 16 * Vecs): first the blocks that every query sees whole, all
/// queries together, then the rest of each query by itself. Both continue the same chain.
template <int Rows, int Vecs, class Element>
CARAVAN_INLINE void weigh_values(const AttentionTile& tile, std::int64_t shared_blocks,
                                 std::int64_t column, const float* factors) {
  Tile<Rows, Vecs> sums;
  clear(sums);
  for (std::int64_t b = 0; b < shared_blocks; ++b) {
    multiply(sums, 16,
             ValueWeights<Element>{value_block<Element>(tile, b) + column, tile.padded_dim},
             RowInputs{tile.scores + b * 16, tile.score_stride});
  }
  float partial[Rows * Vecs * 16];
  store_tile(Place{partial, Vecs * 16, Vecs * 16}, sums);
  for (int m = 0; m < Rows; ++m) {
    Tile<1, Vecs> row;
    load_tile(Place{partial + m * Vecs * 16, 0, Vecs * 16}, row);
    for (std::int64_t t = shared_blocks * 16; t < tile.visible[m]; t += 16) {
      multiply(row, lesser(16, tile.visible[m] - t),
               ValueWeights<Element>{value_block<Element>(tile, t / 16) + column, tile.padded_dim},
               RowInputs{tile.scores + m * tile.score_stride + t, 0});
    }
    const Vec factor = broadcast(factors[m]);
    CARAVAN_UNROLL for (int v = 0; v < Vecs; ++v) row.sum[0][v] = mul(row.sum[0][v], factor);
    store_tile(Place{tile.outputs[m] + column, 0, tile.head_dim - column}, row);
  }
}

template <int Rows>
struct Attend {
  static void call(const AttentionTile& tile) {
    if (tile.cache_dtype == DType::kBFloat16) return over<BFloat16>(tile);
    over<float>(tile);
  }

  template <class Element>
  static void over(const AttentionTile& tile) {
    constexpr int kVecs = vecs_for_rows(Rows) < 4 ? vecs_for_rows(Rows) : 4;
    std::int64_t least = tile.visible[0];
    std::int64_t most = tile.visible[0];
    for (int m = 1; m < Rows; ++m) {
      least = lesser(least, tile.visible[m]);
      most = greater(most, tile.visible[m]);
    }
    pack_queries<Rows>(tile);
    const std::int64_t blocks = (most + 15) / 16;
    std::int64_t block = 0;
    for (; block + kVecs <= blocks; block += kVecs) score_blocks<Rows, kVecs, Element>(tile, block);
    for (; block < blocks; ++block) score_blocks<Rows, 1, Element>(tile, block);

    if (tile.runs != nullptr) apply_runs(tile);
    float factors[Rows];
    for (int m = 0; m < Rows; ++m) {
      factors[m] = softmax_row(tile.scores + m * tile.score_stride, tile.visible[m]);
    }
    std::int64_t column = 0;
    for (; column + kVecs * 16 <= tile.padded_dim; column += kVecs * 16) {
      weigh_values<Rows, kVecs, Element>(tile, least / 16, column, factors);
    }
    for (; column < tile.padded_dim; column += 16) {
      weigh_values<Rows, 1, Element>(tile, least / 16, column, factors);
    }
  }
};

void attention(const AttentionTile& tile) { with_rows<Attend>(tile.count, tile); }
