#include "caravan/batch/output_files.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "caravan/core/error.h"
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

LockOwner me() { return this_process("host-a", "", 0); }

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
