#pragma once
// What this machine reaches at most, measured now: the yardsticks that speeds are shown beside.

#include "caravan/ops/context.h"

namespace caravan::ops {

struct Peaks {
  /// Of reading memory that no cache holds, in huge pages, each thread a stream of its own.
  double read_bytes_per_second = 0;
  /// Of FMA chains in registers, with the vectors of the context's instruction set.
  double fma_flop_per_second = 0;
  /// Of bf16 tile products in registers; 0 unless the context's instruction set is kAmx.
  double tile_flop_per_second = 0;
};

/// Measures with all threads of the context for one or two seconds and takes the best of many short
/// rounds, so that other work on the machine counts little. Takes twice the last-level cache in
/// memory meanwhile, 512 MiB to 2 GiB, shared out among the ranks of a node.
///
/// Collective: no; ranks that share a node measure at the same time to see what each gets.
/// @param local_ranks  of this node that measure at the same time
/// @throws DeviceError if there is no memory.
Peaks measure_peaks(const Context& context, int local_ranks = 1);

}  // namespace caravan::ops
