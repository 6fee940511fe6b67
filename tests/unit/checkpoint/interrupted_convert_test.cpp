// Conversions that are killed: nothing under the final name, and the next one works and tidies up.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "caravan/checkpoint/convert.h"
#include "caravan/checkpoint/model_file.h"
#include "caravan/core/clock.h"
#include "caravan/core/error.h"
#include "generated_model.h"
#include "support/small_random.h"

namespace caravan::checkpoint {
namespace {

using test::HfFolder;

/// Large enough to be some thirty strips and a readable time.
model::LlamaConfig medium_config() {
  model::LlamaConfig config = test::small_config();
  config.hidden_size = 192;
  config.ffn_size = 704;
  config.num_layers = 4;
  config.num_heads = 6;
  config.num_kv_heads = 2;
  config.head_dim = 32;
  return config;
}

class InterruptedConvert : public testing::Test {
 protected:
  InterruptedConvert() {
    options_.source = source_.write();
    options_.target = source_.beside("out/m.h5");
    std::filesystem::create_directory(source_.beside("out"));
  }

  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(source_.beside("out")))
      names.push_back(entry.path().filename().string());
    return names;
  }

  /// Converts in a child, whose exit status it gives.
  int convert_in_child(const std::function<void(pid_t)>& meanwhile) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        convert(options_);
        ::_exit(0);
      } catch (const Error&) {
        ::_exit(1);
      }
    }
    EXPECT_GT(child, 0);
    meanwhile(child);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
  }

  /// Another attempt succeeds and leaves its file alone.
  void expect_recovery() {
    ASSERT_NO_THROW(convert(options_));
    EXPECT_EQ(files(), std::vector<std::string>{"m.h5"});
    EXPECT_NO_THROW(verify(options_.target));
    std::filesystem::remove(options_.target);
  }

  HfFolder source_{medium_config()};
  ConvertOptions options_;
};

TEST_F(InterruptedConvert, LeavesNothingUnderTheNameWhileTensorsAreWritten) {
  test::SmallRandom random(20261201);
  for (const int signal : {SIGKILL, SIGINT, SIGTERM, SIGKILL}) {
    std::int64_t calls_left = 1 + static_cast<std::int64_t>(random.next() % 30);
    SCOPED_TRACE(fmt::format("signal {} at strip {}", signal, calls_left));
    options_.progress = [&](ConvertPhase, std::int64_t, std::int64_t) {
      if (--calls_left == 0) ::raise(signal);
    };
    const int status = convert_in_child([](pid_t) {});
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
    EXPECT_FALSE(std::filesystem::exists(options_.target));
    EXPECT_EQ(files().size(), 1U);  // the temporary file
    options_.progress = nullptr;
    expect_recovery();
  }
}

// Also before the first tensor, while the file is read back, and around the rename.
TEST_F(InterruptedConvert, LeavesNothingOrTheWholeFileWheneverItIsKilled) {
  const Stopwatch watch;
  convert(options_);
  const double whole_seconds = watch.seconds();
  std::filesystem::remove(options_.target);
  test::SmallRandom random(7);
  for (int i = 0; i < 12; ++i) {
    const double delay = whole_seconds * static_cast<double>(random.next() % 1200) / 1000;
    SCOPED_TRACE(fmt::format("killed after {:.3f} s of {:.3f}", delay, whole_seconds));
    const int status = convert_in_child([&](pid_t child) {
      std::this_thread::sleep_for(std::chrono::duration<double>(delay));
      ::kill(child, SIGKILL);
    });
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << status;
    if (std::filesystem::exists(options_.target)) {
      EXPECT_NO_THROW(verify(options_.target));
      std::filesystem::remove(options_.target);
    } else {
      EXPECT_TRUE(WIFSIGNALED(status));
    }
    expect_recovery();
  }
}

}  // namespace
}  // namespace caravan::checkpoint
