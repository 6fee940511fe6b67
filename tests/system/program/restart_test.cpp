// Nothing is lost and nothing is done twice: runs that are killed or stopped, and continued.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "system/program/program_rig.h"

namespace caravan::test {
namespace {

namespace fs = std::filesystem;

constexpr int kRecords = 120;
constexpr double kPatience = 120;  // seconds for a run to get somewhere on a busy machine

std::string many_requests() {
  std::string lines;
  for (int i = 0; i < kRecords; ++i) {
    lines += completion_request("r" + std::to_string(i), "Record " + std::to_string(i),
                                {{"max_tokens", 100 + i % 7}, {"ignore_eos", true}});
  }
  return lines;
}

class RestartTest : public ProgramTest {
 protected:
  void SetUp() override {
    folder_.write("prompts.jsonl", many_requests());
    const ProcessResult whole = caravan(run("whole.jsonl"));
    ASSERT_EQ(whole.code, 0) << whole.err;
    expected_ = read_whole(folder_.file("whole.jsonl"));
  }

  // Few at once, so that records finish one after the other.
  Arguments run(const std::string& output) const {
    return run_arguments(output, {"--max-sequences", "4", "--log-interval", "1"});
  }

  std::int64_t finished_records() const {
    if (!fs::exists(folder_.file("out.jsonl.part"))) return 0;
    const std::string journal = read_whole(folder_.file("out.jsonl.part"));
    return std::max<std::int64_t>(0, std::count(journal.begin(), journal.end(), '\n') - 1);
  }

  /// Waits until a run is in the middle.
  void wait_for_records(Process& process, std::int64_t records) {
    ASSERT_TRUE(
        wait_until([&] { return process.ended() || finished_records() >= records; }, kPatience));
    ASSERT_FALSE(process.ended()) << "the run was over before it could be disturbed";
  }

  void expect_continued(const ProcessResult& result) const {
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.err.find("continuing"), std::string::npos) << result.err;
    EXPECT_EQ(read_whole(folder_.file("out.jsonl")), expected_);
    for (const char* gone : {"out.jsonl.part", "out.jsonl.lock"}) {
      EXPECT_FALSE(fs::exists(folder_.file(gone))) << gone;
    }
  }

  static ProcessOptions options() {
    ProcessOptions options;
    options.environment = launch_environment();
    return options;
  }

  /// The process of one rank below a launcher.
  static pid_t rank_process(pid_t launcher, const std::string& rank) {
    for (const pid_t process : descendants(launcher)) {
      if (environment_of(process, "OMPI_COMM_WORLD_RANK") == rank) return process;
    }
    return 0;
  }

  /// What a process has mapped now, as a limit.
  static rlimit address_space(pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/statm");
    rlim_t pages = 0;
    file >> pages;
    const rlim_t bytes = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
    return {bytes, bytes};
  }

  std::string expected_;
};

TEST_F(RestartTest, KilledAndContinuedManyTimes) {
  for (const std::int64_t records : {2, 20, 50}) {
    Process process(caravan_command(run("out.jsonl")), options());
    wait_for_records(process, records);
    process.signal(SIGKILL);
    EXPECT_EQ(process.wait().code, 128 + SIGKILL);
    EXPECT_FALSE(fs::exists(folder_.file("out.jsonl")));
  }
  EXPECT_GE(finished_records(), 50);
  expect_continued(caravan(run("out.jsonl")));
}

TEST_F(RestartTest, ARankIsKilledAndAnotherNumberOfRanksContinues) {
  Process process(launch_command(2, run("out.jsonl")), options());
  wait_for_records(process, 5);
  const pid_t victim = rank_process(process.pid(), "1");
  ASSERT_GT(victim, 0);
  ::kill(victim, SIGKILL);
  EXPECT_NE(process.wait().code, 0);
  expect_continued(caravan_on(3, run("out.jsonl")));
}

// No memory is left to one rank while its peers go on to the next collective: each of the long
// prompts needs larger buffers than the one before.
TEST_F(RestartTest, AFaultOfOneRankEndsTheJobWithItsCause) {
  std::string lines;
  for (int i = 0; i < 12; ++i) {
    for (int j = 0; j < 8; ++j) {
      lines += completion_request("r" + std::to_string(8 * i + j), "Record", {{"max_tokens", 40}});
    }
    const std::vector<int> prompt(static_cast<std::size_t>(150 + 25 * i), 65 + i);
    lines += completion_request("long-" + std::to_string(i), prompt, {{"max_tokens", 4}});
  }
  folder_.write("prompts.jsonl", lines);
  const ProcessResult whole = caravan(run("long.jsonl"));
  ASSERT_EQ(whole.code, 0) << whole.err;
  expected_ = read_whole(folder_.file("long.jsonl"));
  for (const std::string exchange : {"auto", "mpi"}) {
    for (const std::string rank : {"0", "1"}) {
      Arguments arguments = run("out.jsonl");
      arguments.insert(arguments.end(), {"--exchange", exchange});
      Process process(launch_command(2, arguments), options());
      wait_for_records(process, finished_records() + 3);
      const pid_t victim = rank_process(process.pid(), rank);
      ASSERT_GT(victim, 0);
      const rlimit no_more = address_space(victim);
      ASSERT_EQ(::prlimit(victim, RLIMIT_AS, &no_more, nullptr), 0);
      const ProcessResult result = process.wait();
      // It may be MPI itself that first needs memory.
      const bool of_mpi = result.err.find("MPI failed on rank " + rank) != std::string::npos;
      EXPECT_EQ(result.code, of_mpi ? 69 : 78) << result.err;
      EXPECT_NE(result.err.find("rank " + rank + " of 2 on "), std::string::npos) << result.err;
      EXPECT_NE(result.err.find("answering: "), std::string::npos) << result.err;
    }
  }
  expect_continued(caravan_on(3, run("out.jsonl")));
}

TEST_F(RestartTest, SignalsStopAtTheNextStep) {
  for (const int number : {SIGTERM, SIGUSR1, SIGINT}) {
    Process process(caravan_command(run("out.jsonl")), options());
    wait_for_records(process, finished_records() + 3);
    process.signal(number);
    const ProcessResult stopped = process.wait();
    EXPECT_EQ(stopped.code, 75) << stopped.err;
    EXPECT_NE(stopped.err.find("run the same command again"), std::string::npos) << stopped.err;
    EXPECT_FALSE(fs::exists(folder_.file("out.jsonl.lock")));
    EXPECT_FALSE(fs::exists(folder_.file("out.jsonl")));
  }
  expect_continued(caravan_on(2, run("out.jsonl")));
}

TEST_F(RestartTest, ASignalToOneRankStopsAll) {
  for (const char* rank : {"0", "1"}) {
    Process process(launch_command(2, run("out.jsonl")), options());
    wait_for_records(process, finished_records() + 3);
    const pid_t target = rank_process(process.pid(), rank);
    ASSERT_GT(target, 0);
    ::kill(target, SIGTERM);
    const ProcessResult stopped = process.wait();
    EXPECT_EQ(stopped.code, 75) << stopped.err;
  }
  expect_continued(caravan(run("out.jsonl")));
}

TEST_F(RestartTest, ASecondSignalEndsARunThatCannotGetToTheNextStep) {
  Process process(launch_command(2, run("out.jsonl")), options());
  wait_for_records(process, 3);
  const pid_t leader = rank_process(process.pid(), "0");
  const pid_t frozen = rank_process(process.pid(), "1");
  ASSERT_GT(leader, 0);
  ASSERT_GT(frozen, 0);
  ::kill(frozen, SIGSTOP);  // the leader now waits for it in a collective
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ::kill(leader, SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  EXPECT_FALSE(process.ended()) << "the first signal waits for the step";
  ::kill(leader, SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ::kill(frozen, SIGCONT);  // for the launcher to end it
  EXPECT_EQ(process.wait().code, 75);
  EXPECT_GE(finished_records(), 3);
  expect_continued(caravan(run("out.jsonl")));
}

TEST_F(RestartTest, TheLauncherPassesSignalsOn) {
  Process process(launch_command(2, run("out.jsonl")), options());
  wait_for_records(process, 3);
  process.signal(SIGUSR1);
  EXPECT_EQ(process.wait().code, 75);
  expect_continued(caravan(run("out.jsonl")));
}

TEST_F(RestartTest, ASecondJobOnTheSameOutputIsRefused) {
  Process process(caravan_command(run("out.jsonl")), options());
  wait_for_records(process, 1);
  const ProcessResult second = caravan(run("out.jsonl"));
  EXPECT_EQ(second.code, 73) << second.err;
  // It waits a little for the lock, and the first job may end in that time.
  const bool told = second.err.find("is writing this output") != std::string::npos ||
                    second.err.find("out.jsonl exists; use --overwrite") != std::string::npos;
  EXPECT_TRUE(told) << second.err;
  EXPECT_EQ(process.wait().code, 0);
  EXPECT_EQ(read_whole(folder_.file("out.jsonl")), expected_);
}

// As after a kill behind the rename of the output, or a manifest for which there was no room.
TEST_F(RestartTest, WhatEndsARunBehindItsOutputIsFinished) {
  const std::string journal = folder_.file("out.jsonl.part");
  {
    Process process(caravan_command(run("out.jsonl")), options());
    wait_for_records(process, 1);
    fs::create_hard_link(journal, folder_.file("journal"));  // keeps it
    ASSERT_EQ(process.wait().code, 0);
  }
  const std::string manifest = folder_.file("out.manifest.json");
  EXPECT_FALSE(fs::exists(journal));
  for (const int ranks : {1, 2}) {
    fs::remove(manifest);
    fs::copy_file(folder_.file("journal"), journal);
    expect_continued(caravan_on(ranks, run("out.jsonl")));
    EXPECT_TRUE(fs::exists(manifest));
  }
  // Of somebody else: nothing is touched.
  fs::copy_file(folder_.file("journal"), journal);
  folder_.write("out.jsonl", "not mine\n");
  const ProcessResult refused = caravan(run("out.jsonl"));
  EXPECT_EQ(refused.code, 73) << refused.err;
  EXPECT_EQ(read_whole(folder_.file("out.jsonl")), "not mine\n");
  fs::remove(folder_.file("out.jsonl"));
  expect_continued(caravan(run("out.jsonl")));
  // Half a journal is no proof that the output is this run's.
  const std::string lines = read_whole(folder_.file("journal"));
  folder_.write("out.jsonl.part", lines.substr(0, lines.size() / 2));
  const ProcessResult unproven = caravan(run("out.jsonl"));
  EXPECT_EQ(unproven.code, 73) << unproven.err;
  EXPECT_NE(unproven.err.find("exists; use --overwrite"), std::string::npos) << unproven.err;
}

TEST_F(RestartTest, AJournalWithoutARecordBlocksNoChangedRun) {
  {
    Process process(caravan_command(run("out.jsonl")), options());
    ASSERT_TRUE(wait_until(
        [&] { return process.ended() || fs::exists(folder_.file("out.jsonl.part")); }, kPatience));
    process.signal(SIGKILL);
    process.wait();
  }
  const std::string journal = read_whole(folder_.file("out.jsonl.part"));
  folder_.write("out.jsonl.part", journal.substr(0, journal.find('\n') + 1));
  Arguments warmer = run("out.jsonl");
  warmer.insert(warmer.end(), {"--temperature", "0.7"});
  const ProcessResult result = caravan(warmer);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(read_lines(folder_.file("out.jsonl")).size(), static_cast<std::size_t>(kRecords));
}

TEST_F(RestartTest, AnotherRunDoesNotContinueIt) {
  {
    Process process(caravan_command(run("out.jsonl")), options());
    wait_for_records(process, 2);
    process.signal(SIGTERM);
    ASSERT_EQ(process.wait().code, 75);
  }
  Arguments warmer = run("out.jsonl");
  warmer.insert(warmer.end(), {"--temperature", "0.7"});
  const ProcessResult refused = caravan(warmer);
  EXPECT_EQ(refused.code, 78) << refused.err;
  EXPECT_NE(refused.err.find("temperature: the journal has 0.6, this run has 0.7"),
            std::string::npos)
      << refused.err;
  expect_continued(caravan(run("out.jsonl")));
}

}  // namespace
}  // namespace caravan::test
