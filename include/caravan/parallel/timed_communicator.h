#pragma once
// A communicator that passes everything on to another one and adds up, step by step, the time that
// exchanges of values take, waiting for slower ranks included. For `caravan bench`.

#include "caravan/parallel/communicator.h"

namespace caravan::parallel {

class TimedCommunicator final : public Communicator {
 public:
  /// Borrows `inner`.
  explicit TimedCommunicator(Communicator& inner) : inner_(inner) {}

  /// Seconds of all collectives but `broadcast`, in which ranks wait for the leader's next step:
  /// one sum for each broadcast since the last call, of what came behind it.
  std::vector<double> take_step_seconds();

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  void add_sliced_sum(const SlicedSum& sum, const at::Tensor& partials,
                      at::Tensor& accumulator) override;
  void sum_disjoint(at::Tensor& x) override;
  void gather_columns(const at::Tensor& local, const std::vector<std::int64_t>& widths,
                      at::Tensor& full) override;
  std::vector<std::byte> all_gather(std::span<const std::byte> bytes) override;
  void broadcast(std::vector<std::byte>& bytes) override;
  void alert() override { inner_.alert(); }
  bool alerted() override { return inner_.alerted(); }

 private:
  Communicator& inner_;
  double before_ = 0;  // the first broadcast
  std::vector<double> steps_;
  double& current() { return steps_.empty() ? before_ : steps_.back(); }
};

}  // namespace caravan::parallel
