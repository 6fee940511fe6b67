#include "caravan/parallel/timed_communicator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace caravan::parallel {
namespace {

/// Takes a known time for gathering.
class SlowCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void add_sliced_sum(const SlicedSum&, const at::Tensor&, at::Tensor&) override {}
  void sum_disjoint(at::Tensor&) override {}
  void gather_columns(const at::Tensor&, const std::vector<std::int64_t>&, at::Tensor&) override {}
  std::vector<std::byte> all_gather(std::span<const std::byte> bytes) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return {bytes.begin(), bytes.end()};
  }
  void broadcast(std::vector<std::byte>&) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  void alert() override {}
  bool alerted() override { return false; }
};

TEST(TimedCommunicator, AddsUpTheTimeOfEachStep) {
  SlowCommunicator slow;
  TimedCommunicator timed(slow);
  std::vector<std::byte> bytes(3);
  timed.all_gather(bytes);  // of no step
  timed.broadcast(bytes);
  EXPECT_EQ(timed.all_gather(bytes).size(), 3U);
  timed.all_gather(bytes);
  timed.broadcast(bytes);
  const std::vector<double> steps = timed.take_step_seconds();
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_GE(steps[0], 0.04);
  EXPECT_EQ(steps[1], 0);  // a broadcast waits for the leader and is not counted
  EXPECT_TRUE(timed.take_step_seconds().empty());
}

}  // namespace
}  // namespace caravan::parallel
