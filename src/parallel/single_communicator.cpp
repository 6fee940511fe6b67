#include "caravan/parallel/single_communicator.h"

#include <numeric>

#include "caravan/core/error.h"
#include "tree_sum.h"

namespace caravan::parallel {

void SingleCommunicator::add_sliced_sum(const SlicedSum& sum, const at::Tensor& partials,
                                        at::Tensor& accumulator) {
  CARAVAN_ASSERT(sum.num_ranks() == 1 && partials.size(0) == sum.num_nodes(),
                 "a sum over {} ranks and {} nodes on one rank", sum.num_ranks(), sum.num_nodes());
  CARAVAN_ASSERT(partials.is_contiguous() && accumulator.is_contiguous(),
                 "add_sliced_sum needs contiguous tensors");
  std::vector<float> scratch;  // unused: one rank makes one node
  finish_tree_sum(sum, partials.data_ptr<float>(), accumulator.data_ptr<float>(),
                  accumulator.numel(), scratch);
}

void SingleCommunicator::sum_disjoint(at::Tensor& /*x*/) {}

void SingleCommunicator::gather_columns(const at::Tensor& local,
                                        const std::vector<std::int64_t>& widths, at::Tensor& full) {
  CARAVAN_ASSERT(widths.size() == 1 && local.size(1) == widths[0], "one rank holds all columns");
  if (local.data_ptr() == full.data_ptr()) return;  // computed in place
  full.copy_(local);
}

std::vector<std::byte> SingleCommunicator::all_gather(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

void SingleCommunicator::broadcast(std::vector<std::byte>& /*bytes*/) {}

}  // namespace caravan::parallel
