#include "caravan/parallel/timed_communicator.h"

#include <utility>

#include "caravan/core/clock.h"

namespace caravan::parallel {
namespace {

/// Adds its lifetime to `seconds`.
class AddedTime {
 public:
  explicit AddedTime(double& seconds) : seconds_(seconds) {}
  ~AddedTime() { seconds_ += watch_.seconds(); }
  AddedTime(const AddedTime&) = delete;
  AddedTime& operator=(const AddedTime&) = delete;

 private:
  double& seconds_;
  Stopwatch watch_;
};

}  // namespace

std::vector<double> TimedCommunicator::take_step_seconds() { return std::exchange(steps_, {}); }

void TimedCommunicator::broadcast(std::vector<std::byte>& bytes) {
  inner_.broadcast(bytes);
  steps_.push_back(0);
}

void TimedCommunicator::add_sliced_sum(const SlicedSum& sum, const at::Tensor& partials,
                                       at::Tensor& accumulator) {
  const AddedTime time(current());
  inner_.add_sliced_sum(sum, partials, accumulator);
}

void TimedCommunicator::sum_disjoint(at::Tensor& x) {
  const AddedTime time(current());
  inner_.sum_disjoint(x);
}

void TimedCommunicator::gather_columns(const at::Tensor& local,
                                       const std::vector<std::int64_t>& widths, at::Tensor& full) {
  const AddedTime time(current());
  inner_.gather_columns(local, widths, full);
}

std::vector<std::byte> TimedCommunicator::all_gather(std::span<const std::byte> bytes) {
  const AddedTime time(current());
  return inner_.all_gather(bytes);
}

}  // namespace caravan::parallel
