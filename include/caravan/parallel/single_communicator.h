#pragma once
// The group of one rank: every collective is the identity (the sliced sum still adds in tree
// order).

#include "caravan/parallel/communicator.h"

namespace caravan::parallel {

class SingleCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void add_sliced_sum(const SlicedSum& sum, const at::Tensor& partials,
                      at::Tensor& accumulator) override;
  void sum_disjoint(at::Tensor& x) override;
  void gather_columns(const at::Tensor& local, const std::vector<std::int64_t>& widths,
                      at::Tensor& full) override;
  std::vector<std::byte> all_gather(std::span<const std::byte> bytes) override;
  void broadcast(std::vector<std::byte>& bytes) override;
  void alert() override {}
  bool alerted() override { return false; }
};

}  // namespace caravan::parallel
