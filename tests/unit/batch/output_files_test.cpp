#include "caravan/batch/output_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "caravan/core/error.h"
#include "caravan/io/atomic_file.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace caravan::batch {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TemporaryFolder;

TEST(OutputNames, StandBesideTheOutput) {
  const OutputNames names("a/b.jsonl");
  EXPECT_EQ(names.journal, "a/b.jsonl.part");
  EXPECT_EQ(names.lock, "a/b.jsonl.lock");
  EXPECT_EQ(names.manifest, "a/b.manifest.json");
  EXPECT_EQ(names.folder, "a");
  EXPECT_EQ(OutputNames("out").manifest, "out.manifest.json");
  EXPECT_EQ(OutputNames("out").folder, ".");
}

TEST(CheckOutput, RefusesWhatWouldDestroyOrFail) {
  const TemporaryFolder folder;
  const std::string input = folder.write("in.jsonl", "x");
  const std::string existing = folder.write("old.jsonl", "x");
  fs::create_symlink(input, folder.file("link.jsonl"));
  fs::create_hard_link(input, folder.file("hard.jsonl"));
  const auto check = [&](const std::string& output, ExistingOutput policy) {
    check_output(OutputNames(output), {input}, {}, policy);
  };
  for (const char* same : {"in.jsonl", "link.jsonl", "hard.jsonl", "./in.jsonl"}) {
    expect_error<UsageError>([&] { check(folder.file(same), ExistingOutput::kReplace); },
                             "same file");
  }
  expect_error<CannotCreateError>([&] { check(existing, ExistingOutput::kRefuse); }, "--overwrite");
  expect_error<CannotCreateError>(
      [&] { require_no_output(OutputNames(existing), ExistingOutput::kRefuse); }, "--overwrite");
  check(existing, ExistingOutput::kReplace);
  check(folder.file("new.jsonl"), ExistingOutput::kRefuse);
  expect_error<CannotCreateError>([&] { check(folder.path(), ExistingOutput::kReplace); },
                                  "is a folder");
  expect_error<CannotCreateError>(
      [&] { check(folder.file("no/x.jsonl"), ExistingOutput::kRefuse); }, "there is no folder");
  expect_error<UsageError>(
      [&] {
        check_output(OutputNames(folder.file("new.jsonl")), {input}, {folder.path()},
                     ExistingOutput::kRefuse);
      },
      "input folder");
}

TEST(CheckOutput, ANameThatLeavesNoRoomForItsSuffixesIsRefused) {
  const TemporaryFolder folder;
  const auto check = [&](std::size_t bytes) {
    check_output(OutputNames(folder.file(std::string(bytes - 6, 'x') + ".jsonl")), {}, {},
                 ExistingOutput::kRefuse);
  };
  const auto longest = static_cast<std::size_t>(::pathconf(folder.path().c_str(), _PC_NAME_MAX));
  // ".manifest.json" takes the place of ".jsonl", and a temporary suffix follows.
  check(longest - 8 - io::kMaxTemporarySuffixBytes);
  expect_error<CannotCreateError>([&] { check(longest - 7 - io::kMaxTemporarySuffixBytes); },
                                  "choose a shorter one");
  expect_error<CannotCreateError>([&] { check(longest); }, "choose a shorter one");
}

TEST(CheckOutput, WhatIsNoFileIsNoJournal) {
  const TemporaryFolder folder;
  const OutputNames names(folder.file("a.jsonl"));
  const auto check = [&] { check_output(names, {}, {}, ExistingOutput::kRefuse); };
  for (const std::string& name : {names.journal, names.lock, names.manifest}) {
    ASSERT_EQ(::mkfifo(name.c_str(), 0600), 0);
    expect_error<CannotCreateError>(check, name);
    fs::remove(name);
    fs::create_symlink("/dev/null", name);
    expect_error<CannotCreateError>(check, name);
    fs::remove(name);
  }
  check();
}

LockOwner me() { return this_process("host-a", "", 0); }

TEST(CheckOutput, NeverReplacesWhatTheRunReadsOrWhatIsNoFile) {
  const test::TemporaryFolder folder;
  const std::string model = folder.write("m.h5", "weights");
  const OutputNames names(folder.file("a.jsonl"));
  test::expect_error<UsageError>([&] { check_not_replaced(OutputNames(model), "--model", model); },
                                 "--model");
  test::expect_error<UsageError>(
      [&] { check_not_replaced(names, "--config", folder.write("a.manifest.json", "{}")); },
      "which the run writes");
  EXPECT_NO_THROW(check_not_replaced(names, "--model", model));
  std::filesystem::create_symlink(model, folder.file("a.jsonl"));
  test::expect_error<CannotCreateError>(
      [&] { check_output(names, {}, {}, ExistingOutput::kReplace); }, "regular file");
  EXPECT_EQ(std::filesystem::file_size(model), 7U);
}

TEST(OutputLock, KeepsASecondJobOut) {
  const TemporaryFolder folder;
  const std::string path = folder.file("out.lock");
  {
    const OutputLock lock(path, me());
    expect_error<CannotCreateError>([&] { OutputLock(path, me()); },
                                    "process " + std::to_string(::getpid()) + " on host-a");
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(OutputLock, TakesOverFromADeadProcess) {
  const TemporaryFolder folder;
  const std::string path = folder.file("out.lock");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    new OutputLock(path, this_process("host-a", "", 0));  // dies without releasing it
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(fs::exists(path));
  expect_error<CannotCreateError>([&] { OutputLock(path, this_process("host-b", "", 0)); },
                                  "on host-a");
  const OutputLock lock(path, me());
}

TEST(OutputLock, AProcessThatOnlyWaitsToBeReapedIsDead) {
  const TemporaryFolder folder;
  const std::string path = folder.file("out.lock");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    new OutputLock(path, this_process("host-a", "", 0));
    ::_exit(0);
  }
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  { const OutputLock lock(path, me()); }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST(OutputLock, TakesOverWhatNobodyRefreshes) {
  const TemporaryFolder folder;
  const std::string path = folder.write("out.lock",
                                        "{\"host\":\"elsewhere\",\"pid\":1,\"started\":1,"
                                        "\"job\":\"7\",\"restarts\":0}\n");
  expect_error<CannotCreateError>([&] { OutputLock(path, me()); }, "elsewhere (job 7)");
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
  OutputLock lock(path, me());
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
  lock.refresh();
  expect_error<CannotCreateError>([&] { OutputLock(path, this_process("host-b", "", 0)); },
                                  "host-a");
}

TEST(OutputLock, ALivingProcessOfThisHostIsNeverAbandoned) {
  const TemporaryFolder folder;
  const std::string path = folder.file("out.lock");
  const OutputLock lock(path, me());
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(100));
  expect_error<CannotCreateError>([&] { OutputLock(path, me()); }, "on host-a");
  EXPECT_TRUE(fs::exists(path));
}

TEST(OutputLock, ALockThatWasTakenOverIsNoLongerOnesOwn) {
  const TemporaryFolder folder;
  const std::string path = folder.file("out.lock");
  const LockOwner other = this_process("host-b", "", 0);
  std::optional<OutputLock> later;
  {
    OutputLock lock(path, me());
    lock.refresh();
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
    later.emplace(path, other);
    expect_error<IoError>([&] { lock.refresh(); }, "now belongs to process");
  }
  EXPECT_TRUE(fs::exists(path)) << "the first holder removed the lock of the second";
  later->refresh();
  later.reset();
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 0);
}

TEST(OutputLock, ManySeekersOfAStaleLockGiveOneHolder) {
  const TemporaryFolder folder;
  const std::string path = folder.write("out.lock",
                                        "{\"host\":\"elsewhere\",\"pid\":1,\"started\":1,"
                                        "\"job\":\"7\",\"restarts\":0}\n");
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
  std::vector<pid_t> seekers;
  for (int i = 0; i < 8; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        const OutputLock lock(path, this_process("host-a", "", 0));
        std::this_thread::sleep_for(std::chrono::seconds(5));  // longer than the others seek
        ::_exit(0);
      } catch (const CannotCreateError&) {
        ::_exit(1);
      }
    }
    seekers.push_back(child);
  }
  int holders = 0;
  for (const pid_t child : seekers) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) ++holders;
  }
  EXPECT_EQ(holders, 1);
}

TEST(FreeSpace, RefusesWhatCannotFit) {
  const TemporaryFolder folder;
  const OutputNames names(folder.file("out.jsonl"));
  check_free_space(names, 10, 10);
  expect_error<IoError>([&] { check_free_space(names, 0, std::int64_t{1} << 50); }, "only");
}

TEST(OutputLock, StaleMeansDeadOrRequeued) {
  const LockOwner self = me();
  EXPECT_FALSE(is_stale(self, self));
  LockOwner reused = self;
  reused.started += 1;  // another process had this pid before
  EXPECT_TRUE(is_stale(reused, self));
  const LockOwner first{"node1", 5, 5, "77", 0};
  EXPECT_TRUE(is_stale(first, {"node2", 9, 9, "77", 1}));
  EXPECT_FALSE(is_stale(first, {"node2", 9, 9, "77", 0}));  // another step of the same start
  EXPECT_FALSE(is_stale(first, {"node2", 9, 9, "78", 1}));
}

}  // namespace
}  // namespace caravan::batch
