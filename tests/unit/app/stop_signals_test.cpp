#include "caravan/app/stop_signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace caravan::app {
namespace {

// In a child of the test: signals, and what the program then is.
void signal_twice(useconds_t pause_us) {
  install_stop_signals();
  ::raise(SIGUSR1);
  ::usleep(pause_us);
  ::raise(SIGTERM);
  ::_exit(stop_signal() == SIGUSR1 ? 11 : 12);
}

TEST(StopSignals, TheFirstAsksForAStop) {
  EXPECT_EXIT(
      {
        install_stop_signals();
        const int before = stop_signal();
        ::raise(SIGINT);
        ::_exit(before == 0 && stop_signal() == SIGINT ? 11 : 12);
      },
      testing::ExitedWithCode(11), "");
}

TEST(StopSignals, ASecondDeliveryOfOneWishIsNoSecondWish) {
  EXPECT_EXIT(signal_twice(100'000), testing::ExitedWithCode(11), "");
}

TEST(StopSignals, ASecondWishEndsTheProcessAtOnce) {
  EXPECT_EXIT(signal_twice(2'100'000), testing::ExitedWithCode(75), "");
}

}  // namespace
}  // namespace caravan::app
