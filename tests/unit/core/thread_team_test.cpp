#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "caravan/core/error.h"
#include "caravan/core/thread_team.h"

namespace caravan {
namespace {

TEST(ThreadTeam, RunsEveryShareExactlyOnce) {
  for (const int size : {1, 2, 3, 5}) {
    ThreadTeam team(size);
    std::vector<std::atomic<int>> calls(static_cast<std::size_t>(size));
    for (int round = 0; round < 500; ++round) {
      team.run([&](ThreadShare share) {
        EXPECT_EQ(share.count, size);
        calls[static_cast<std::size_t>(share.index)].fetch_add(1);
      });
      for (const auto& count : calls) EXPECT_EQ(count.load(), round + 1);
    }
  }
}

TEST(ThreadTeam, WakesAfterTheThreadsFellAsleep) {
  ThreadTeam team(3);
  std::atomic<int> sum{0};
  for (int round = 1; round <= 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    team.run([&](ThreadShare) { sum.fetch_add(1); });
    EXPECT_EQ(sum.load(), 3 * round);
  }
}

TEST(ThreadTeam, EndsWithoutHavingRun) {
  for (int round = 0; round < 50; ++round) ThreadTeam team(4);
}

TEST(ThreadTeam, RefusesFewerThanOneThread) { EXPECT_THROW(ThreadTeam(0), ConfigError); }

}  // namespace
}  // namespace caravan
