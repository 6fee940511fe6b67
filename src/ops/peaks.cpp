#include "caravan/ops/peaks.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "caravan/core/clock.h"
#include "caravan/core/partition.h"
#include "caravan/ops/packed_weight.h"
#include "cpu/kernel_table.h"

namespace caravan::ops {
namespace {

constexpr double kSeconds = 0.4;  // for each of the three

/// Rounds in a second, of all threads together, at the best of many.
template <typename Work>
double best_rate(ThreadTeam& team, const Work& work) {
  double best = 1e300;
  const Stopwatch all;
  do {
    const Stopwatch watch;
    team.run(work);
    best = std::min(best, watch.seconds());
  } while (all.seconds() < kSeconds);
  return 1 / std::max(best, 1e-9);
}

/// More than caches hold, and no more than a node can spare.
std::int64_t read_bytes() {
  constexpr std::int64_t kLeast = std::int64_t{512} << 20;
  const std::int64_t last_cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);  // 0 or -1 where not told
  return std::clamp(2 * last_cache, kLeast, 4 * kLeast);
}

/// Bytes per second of passes over more memory than caches hold: of each piece the best pass
/// counts, since other work hardly leaves a whole pass alone.
template <typename Read>
double read_rate(ThreadTeam& team, int local_ranks, const Read& read) {
  constexpr std::int64_t kPieces = 32;
  const std::int64_t piece_floats = read_bytes() / local_ranks / 4 / kPieces;
  const std::int64_t bytes = kPieces * piece_floats * 4;
  const at::Tensor memory = allocate_huge(bytes);
  auto* const values = static_cast<float*>(memory.data_ptr());
  // Pages that nobody wrote to are all the same one.
  team.run([&](ThreadShare share) {
    const Range part = split_evenly(bytes / 4, share.count, share.index);
    std::fill(values + part.begin, values + part.end, 1.0F);
  });
  std::array<double, kPieces> best;
  best.fill(1e300);
  const Stopwatch all;
  do {
    for (std::size_t i = 0; i < best.size(); ++i) {
      const float* const piece = values + static_cast<std::int64_t>(i) * piece_floats;
      const Stopwatch watch;
      team.run([&](ThreadShare share) { read(share, piece, piece_floats); });
      best[i] = std::min(best[i], watch.seconds());
    }
  } while (all.seconds() < kSeconds);
  return static_cast<double>(bytes) /
         std::max(std::accumulate(best.begin(), best.end(), 0.0), 1e-9);
}

}  // namespace

Peaks measure_peaks(const Context& context, int local_ranks) {
  ThreadTeam& team = context.team();
  const PeakKernels& kernels = context.kernels().peaks;
  // A line for each thread. What is computed must go somewhere, or it would not be computed.
  std::vector<float> results(static_cast<std::size_t>(team.size()) * 16);
  const auto result = [&](ThreadShare share) -> float& {
    return results[static_cast<std::size_t>(share.index) * 16];
  };
  Peaks peaks;
  // Vectors of the loop one after the other, as often as takes longer than waking the threads.
  constexpr int kCalls = 16;
  peaks.fma_flop_per_second =
      kernels.flop * kCalls * team.size() * best_rate(team, [&](ThreadShare share) {
        for (int i = 0; i < kCalls; ++i) {
          result(share) += kernels.multiply(0.5F);
        }
      });
  if (context.isa() == Isa::kAmx) {
    peaks.tile_flop_per_second =
        kAmxTileFlop * team.size() * best_rate(team, [](ThreadShare) { multiply_tiles(); });
  }
  peaks.read_bytes_per_second =
      read_rate(team, local_ranks, [&](ThreadShare share, const float* values, std::int64_t count) {
        const Range part = split_evenly(count, share.count, share.index);
        result(share) += kernels.read(values + part.begin, part.size());
      });
  return peaks;
}

}  // namespace caravan::ops
