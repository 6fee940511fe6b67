// y = x W^T of bf16 computing over packed panels of pairs, plain and sliced (contract:
// caravan/ops/linear.h). One driver; what a block of rows does over some runs is in
// bf16_chains.inl or bf16_tiles.inl.
//
// A step is a part of one long slice, or up to four short slices that are neighbours in the tree:
// their sums meet while they are in the nearest cache. Above that, sums of slices wait as in
// linear_tiles.inl: slice s (counted within its node) at level popcount(s), level 0 is the output.

constexpr std::int64_t kStepRuns = 8;    // 16 KiB of weights, which stay in the nearest cache
constexpr std::int64_t kStepSlices = 4;  // a power of two
constexpr std::int64_t kRunElements = kRunColumns * kPanelWidth;
constexpr std::int64_t kBlockFloats = kBlockRows * kPanelWidth;

CARAVAN_INLINE std::int64_t runs_of(const Range& slice) {
  return parts_of(slice.end - slice.begin, kRunColumns);
}

std::int64_t all_runs(const LinearArgs& args) {
  std::int64_t runs = 0;
  for (std::int64_t s = 0; s < args.num_slices; ++s) runs += runs_of(args.slices[s]);
  return runs;
}

std::int64_t bf16_packed_floats(const LinearArgs& args) {
  return (args.rows + kBlockRows) * all_runs(args) * kRunFloats;
}

CARAVAN_INLINE std::int64_t group_blocks(const LinearArgs& args, std::int64_t runs) {
  return lesser(parts_of(args.rows, kBlockRows), blocks_per_group(runs));
}

/// Workspace of a thread: gathered weights, sums of the slices of a step, and for each block of
/// the group the sums of an unfinished slice and those that wait.
std::int64_t bf16_stack_floats(const LinearArgs& args) {
  return kStepRuns * kRunElements / 2 + kStepSlices * kBlockFloats +
         (1 + args.stack_levels) * group_blocks(args, all_runs(args)) * kBlockFloats;
}

/// Rounds the inputs and packs them, block after block, in each run after run. Threads share the
/// runs.
void bf16_pack(const LinearArgs& args, ThreadShare share) {
  const std::int64_t runs = all_runs(args);
  const Span own = part_of(runs, share.count, share.index);
  for (std::int64_t first = 0; first < args.rows; first += kBlockRows) {
    const std::int64_t rows = lesser(kBlockRows, args.rows - first);
    const std::int64_t padded = padded_rows(rows, args.rows);
    float* const block = args.packed + first * runs * kRunFloats;
    for (std::int64_t row = 0; row < padded; ++row) {
      const float* const x = args.x + (first + row) * args.x_stride;
      std::int64_t run = 0;
      for (std::int64_t s = 0; s < args.num_slices && run < own.end; ++s) {
        std::int64_t column = args.slices[s].begin;
        for (; column < args.slices[s].end; column += kRunColumns, ++run) {
          if (run < own.begin || run >= own.end) continue;
          float* const target = block + run * padded * kRunFloats;
          const std::int64_t count = lesser(kRunColumns, args.slices[s].end - column);
          if (row < rows && count == kRunColumns) {
            pack_run(x + column, row, padded, target);
            continue;
          }
          std::uint16_t values[kRunColumns];
          for (int k = 0; k < kRunColumns; ++k) {
            values[k] = row < rows && k < count ? round_to_bf16(x[column + k]) : 0;
          }
          store_run(values, row, padded, target);
        }
      }
    }
  }
}

struct Step {
  std::int64_t slice;       // the first
  std::int64_t num_slices;  // 1 for a part of a slice
  std::int64_t node;
  std::int64_t in_node;  // index of the first slice within its node
  bool last_of_node;     // no slice of the node comes after it
  std::int64_t part;     // of the slice, of `parts`
  std::int64_t parts;
  std::int64_t first_run;  // of the whole product
  std::int64_t num_runs;
};

/// The step that begins with `part` of `slice`.
Step step_from(const LinearArgs& args, std::int64_t slice, std::int64_t node, std::int64_t part,
               std::int64_t first_run) {
  const SliceTree::Node& owner = args.nodes[node];
  const std::int64_t in_node = args.first_slice + slice - owner.slices.begin;
  const std::int64_t node_end = owner.slices.end - args.first_slice;
  Step step{slice, 1, node, in_node, false, part, 1, first_run, runs_of(args.slices[slice])};
  if (step.num_runs > kStepRuns) {
    step.parts = parts_of(step.num_runs, kStepRuns);
    const Span runs = part_of(step.num_runs, step.parts, part);
    step.num_runs = runs.end - runs.begin;
  }
  for (std::int64_t width = 2; width <= kStepSlices && step.parts == 1; width *= 2) {
    const std::int64_t end = lesser(slice + width, node_end);
    if (in_node % width != 0 || end - slice <= width / 2) break;
    std::int64_t runs = step.num_runs;
    for (std::int64_t s = slice + step.num_slices; s < end; ++s) runs += runs_of(args.slices[s]);
    if (runs > kStepRuns) break;
    step.num_slices = end - slice;
    step.num_runs = runs;
  }
  step.last_of_node = slice + step.num_slices == node_end;
  return step;
}

CARAVAN_INLINE bool ends_slice(const Step& step) { return step.part + 1 == step.parts; }

/// Weights of one panel for the runs of a step: where they lie, or, where a run does not begin with
/// a pair or is not whole, copied and filled up with zeros.
struct StepWeights {
  const BFloat16* runs[kStepRuns];
  const char* end;  // of the columns of the step
};

void gather_run(const BFloat16* panel, Span columns, BFloat16* target) {
  for (std::int64_t k = 0; k < kRunColumns; ++k) {
    const std::int64_t column = columns.begin + k;
    const BFloat16* const source = panel + column / 2 * 2 * kPanelWidth + column % 2;
    BFloat16* const to = target + k / 2 * 2 * kPanelWidth + k % 2;
    for (std::int64_t lane = 0; lane < kPanelWidth; ++lane) {
      to[2 * lane].bits = column < columns.end ? source[2 * lane].bits : std::uint16_t{0};
    }
  }
}

void find_weights(const LinearArgs& args, const Step& step, const BFloat16* panel,
                  BFloat16* gathered, StepWeights& weights) {
  std::int64_t found = 0;
  std::int64_t end = 0;
  for (std::int64_t s = step.slice; s < step.slice + step.num_slices; ++s) {
    const Span runs = part_of(runs_of(args.slices[s]), step.parts, step.part);
    for (std::int64_t run = runs.begin; run < runs.end; ++run, ++found) {
      const std::int64_t begin = args.slices[s].begin + run * kRunColumns;
      end = lesser(begin + kRunColumns, args.slices[s].end);
      if (begin % 2 == 0 && end == begin + kRunColumns) {
        weights.runs[found] = panel + begin * kPanelWidth;
      } else {
        BFloat16* const copy = gathered + found * kRunElements;
        gather_run(panel, {begin, end}, copy);
        weights.runs[found] = copy;
      }
    }
  }
  weights.end = reinterpret_cast<const char*>(panel + end * kPanelWidth);
}

/// Rows of a block in one panel, and where its sums are kept.
struct BlockSite {
  std::int64_t row;
  std::int64_t rows;
  std::int64_t panel;
  float* unfinished;          // of a slice that goes on
  float* waiting;             // level 1
  std::int64_t level_stride;  // floats from one level to the next
};

CARAVAN_INLINE Place row_place(const LinearArgs& args, const Step& step, const BlockSite& site,
                               std::int64_t row, int level) {
  const std::int64_t column = site.panel * kPanelWidth;
  if (level == 0) {
    return {args.y + step.node * args.y_node_stride + (site.row + row) * args.y_stride + column, 0,
            args.out - column};
  }
  return {site.waiting + (level - 1) * site.level_stride + row * kPanelWidth, 0, kPanelWidth};
}

/// Adds up the finished slices of a step, joins the sums that waited for them, and puts the result
/// where it waits or belongs. Ordinary float32 additions, as those between ranks.
void finish_block(const LinearArgs& args, const Step& step, const BlockSite& site,
                  const float* sums) {
  const auto in_node = static_cast<std::uint64_t>(step.in_node);
  const int level = __builtin_popcountll(in_node);
  const int merges =
      step.last_of_node ? level
                        : __builtin_ctzll(~(in_node / static_cast<std::uint64_t>(step.num_slices)));
  const std::int64_t count = step.num_slices;
  for (std::int64_t row = 0; row < site.rows; ++row) {
    const float* const own = sums + row * kPanelWidth;
    Tile<1, 2> sum;
    load_tile(Place{const_cast<float*>(own), 0, kPanelWidth}, sum);
    for (int v = 0; v < 2; ++v) {
      const auto slice_sum = [&](int s) { return load(own + s * kBlockFloats + v * 16); };
      if (count > 1) sum.sum[0][v] = add(sum.sum[0][v], slice_sum(1));
      if (count == 3) sum.sum[0][v] = add(sum.sum[0][v], slice_sum(2));
      if (count == 4) sum.sum[0][v] = add(sum.sum[0][v], add(slice_sum(2), slice_sum(3)));
    }
    int at = level;
    for (int i = 0; i < merges; ++i) add_to_tile(row_place(args, step, site, row, --at), sum);
    if (step.last_of_node && args.bias != nullptr) {
      add_bias(args, site.panel * kPanelWidth, sum);
    }
    store_tile(row_place(args, step, site, row, at), sum);
  }
}

struct Workspace {
  BFloat16* gathered;
  float* slices;
  float* blocks;
};

CARAVAN_INLINE Workspace workspace_of(const LinearArgs& args, ThreadShare share) {
  float* const own = args.stacks + share.index * bf16_stack_floats(args);
  float* const slices = own + kStepRuns * kRunElements / 2;
  return {reinterpret_cast<BFloat16*>(own), slices, slices + kStepSlices * kBlockFloats};
}

/// One block of rows over one step.
void run_block(const LinearArgs& args, const Step& step, const StepWeights& weights,
               const BlockSite& site, const BlockUnit& unit, RunBlock block, float* slices) {
  if (step.parts > 1) {
    block.weights = weights.runs;
    block.num_runs = step.num_runs;
    block.continues = step.part > 0;
    block.sums = site.unfinished;
    unit.multiply(block);
    if (ends_slice(step)) finish_block(args, step, site, site.unfinished);
    return;
  }
  const BFloat16* const* runs = weights.runs;
  block.continues = false;
  for (std::int64_t s = 0; s < step.num_slices; ++s) {
    block.weights = runs;
    block.num_runs = runs_of(args.slices[step.slice + s]);
    block.sums = slices + s * kBlockFloats;
    if (block.num_runs == 0) {
      __builtin_memset(block.sums, 0, kBlockFloats * sizeof(float));
      continue;
    }
    unit.multiply(block);
    runs += block.num_runs;
    block.inputs += block.num_runs * block.rows * kRunFloats;
    block.next += block.num_runs * block.next_lines * 64;
  }
  finish_block(args, step, site, slices);
}

/// Where the step after `step` begins; false after the last.
bool next_step(const LinearArgs& args, Step& step) {
  const std::int64_t run = step.first_run + step.num_runs;
  if (!ends_slice(step)) {
    step = step_from(args, step.slice, step.node, step.part + 1, run);
    return true;
  }
  const std::int64_t slice = step.slice + step.num_slices;
  if (slice == args.num_slices) return false;
  step = step_from(args, slice, step.node + (step.last_of_node ? 1 : 0), 0, run);
  return true;
}

/// One panel for one group of blocks.
void run_panel(const LinearArgs& args, std::int64_t runs, Span blocks, std::int64_t panel,
               const BlockUnit& unit, const Workspace& workspace) {
  const std::int64_t count = blocks.end - blocks.begin;
  const auto* const weights =
      static_cast<const BFloat16*>(args.weights) + panel * parts_of(args.in, 2) * 2 * kPanelWidth;
  Step step = step_from(args, 0, 0, 0, 0);
  do {
    StepWeights step_weights;
    find_weights(args, step, weights, workspace.gathered, step_weights);
    // The blocks fetch the weights of the next step together.
    const std::int64_t lines = parts_of(kRunElements * 2 / 64, count);
    for (std::int64_t b = 0; b < count; ++b) {
      const std::int64_t row = (blocks.begin + b) * kBlockRows;
      const std::int64_t rows = lesser(kBlockRows, args.rows - row);
      float* const kept = workspace.blocks + b * kBlockFloats;
      const std::int64_t level_stride = count * kBlockFloats;
      const BlockSite site{row, rows, panel, kept, kept + level_stride, level_stride};
      RunBlock block{};
      block.rows = padded_rows(rows, args.rows);
      block.inputs =
          args.packed + row * runs * kRunFloats + step.first_run * block.rows * kRunFloats;
      block.next = step_weights.end + b * step.num_runs * lines * 64;
      block.next_lines = lines;
      run_block(args, step, step_weights, site, unit, block, workspace.slices);
    }
  } while (next_step(args, step));
}

/// Threads share (group of rows, panel) pairs, panels of one group next to each other.
void linear_bf16(const LinearArgs& args, ThreadShare share) {
  const std::int64_t runs = all_runs(args);
  const std::int64_t panels = parts_of(args.out, kPanelWidth);
  const std::int64_t blocks = parts_of(args.rows, kBlockRows);
  const std::int64_t groups = parts_of(blocks, group_blocks(args, runs));
  const Span items = part_of(groups * panels, share.count, share.index);
  if (items.begin == items.end) return;
  const Workspace workspace = workspace_of(args, share);
  const BlockUnit unit(args);
  for (std::int64_t item = items.begin; item < items.end; ++item) {
    run_panel(args, runs, part_of(blocks, groups, item / panels), item % panels, unit, workspace);
  }
}

constexpr ProductKernels kBf16Products = {bf16_packed_floats, bf16_stack_floats, bf16_pack,
                                          linear_bf16};
