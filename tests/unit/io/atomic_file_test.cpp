#include "caravan/io/atomic_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "caravan/core/error.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace caravan::io {
namespace {

using test::expect_error;
using test::read_whole;
using test::TemporaryFolder;

std::int64_t num_entries(const TemporaryFolder& folder) {
  return std::distance(std::filesystem::directory_iterator(folder.path()),
                       std::filesystem::directory_iterator());
}

// A limit on the size of files stands in for a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limited = {bytes, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limited), 0);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_ = SIG_DFL;
};

TEST(AtomicFile, AppearsWithAllItsContentOnCommitOnly) {
  const TemporaryFolder folder;
  const std::string target = folder.write("out", "old");
  {
    AtomicFile file(target);
    file.write("new ");
    file.write("content");
    EXPECT_EQ(read_whole(target), "old");
    file.commit();
  }
  EXPECT_EQ(read_whole(target), "new content");
  EXPECT_EQ(num_entries(folder), 1);
}

TEST(AtomicFile, LeavesNothingBehindWithoutCommit) {
  const TemporaryFolder folder;
  {
    AtomicFile file(folder.file("out"));
    file.write("half");
    EXPECT_EQ(num_entries(folder), 1);
  }
  EXPECT_EQ(num_entries(folder), 0);
}

TEST(AtomicFile, TwoWritersOfOneTargetDoNotMix) {
  const TemporaryFolder folder;
  AtomicFile first(folder.file("out"));
  AtomicFile second(folder.file("out"));
  first.write("first");
  second.write("second");
  first.commit();
  EXPECT_EQ(read_whole(folder.file("out")), "first");
  second.commit();
  EXPECT_EQ(read_whole(folder.file("out")), "second");
}

TEST(AtomicFile, ReportsAFailedWriteAndKeepsTheTarget) {
  const TemporaryFolder folder;
  const std::string target = folder.write("out", "old");
  {
    AtomicFile file(target);
    const FileSizeLimit limit(8192);
    expect_error<IoError>([&] { file.write(std::string(10000, 'x')); },
                          "failed after 8192 bytes with 1808 bytes left to write: File too large");
  }
  EXPECT_EQ(read_whole(target), "old");
  EXPECT_EQ(num_entries(folder), 1);
}

TEST(AtomicFile, RefusesFoldersAndMissingFolders) {
  const TemporaryFolder folder;
  expect_error<CannotCreateError>([&] { AtomicFile file(folder.path()); }, "is a folder");
  expect_error<CannotCreateError>([&] { AtomicFile file(folder.file("no/out")); },
                                  "No such file or directory");
}

TEST(FreeDiskBytes, IsKnownForFoldersAndFilesToBeMade) {
  const TemporaryFolder folder;
  EXPECT_GT(free_disk_bytes(folder.path()), 0);
  EXPECT_GT(free_disk_bytes(folder.file("new")), 0);
  expect_error<IoError>([&] { free_disk_bytes(folder.file("no/new")); }, "cannot query");
}

TEST(SameFile, SeesThroughLinks) {
  const TemporaryFolder folder;
  const std::string first = folder.write("a", "x");
  const std::string second = folder.write("b", "x");
  std::filesystem::create_symlink(first, folder.file("soft"));
  std::filesystem::create_hard_link(first, folder.file("hard"));
  EXPECT_TRUE(same_file(first, folder.file("soft")));
  EXPECT_TRUE(same_file(first, folder.file("hard")));
  EXPECT_FALSE(same_file(first, second));
  EXPECT_FALSE(same_file(first, folder.file("none")));
}

TEST(AtomicFile, KeepsATargetThatAppearedWhereAsked) {
  const TemporaryFolder folder;
  const std::string target = folder.file("a");
  {
    AtomicFile file(target);
    file.write("new");
    folder.write("a", "of somebody else");
    expect_error<CannotCreateError>([&] { file.commit(ExistingTarget::kKeep); }, "appeared");
  }
  EXPECT_EQ(read_whole(target), "of somebody else");
  EXPECT_EQ(num_entries(folder), 1);
  std::filesystem::remove(target);
  AtomicFile file(target);
  file.write("new");
  file.commit(ExistingTarget::kKeep);
  EXPECT_EQ(read_whole(target), "new");
}

TEST(Leftovers, GoOnceNobodyCanBeWritingThem) {
  const TemporaryFolder folder;
  const std::string target = folder.file("m.h5");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  const std::string dead = target + ".part-" + std::to_string(child);
  const std::string ours = target + ".part-" + std::to_string(::getpid());
  const std::string elsewhere = target + ".part-999999998";  // no process of this host
  const std::string old = target + ".part-999999999";
  for (const std::string& path : {dead, ours, elsewhere, old})
    folder.write(std::filesystem::path(path).filename().string(), "half");
  std::filesystem::last_write_time(
      old, std::filesystem::file_time_type::clock::now() - std::chrono::minutes(5));
  Leftovers leftovers(target);
  EXPECT_FALSE(std::filesystem::exists(old));
  EXPECT_TRUE(std::filesystem::exists(dead));
  folder.write(std::filesystem::path(elsewhere).filename().string(), "half and more");
  leftovers.remove_unchanged();
  EXPECT_FALSE(std::filesystem::exists(dead));
  EXPECT_TRUE(std::filesystem::exists(ours));
  EXPECT_TRUE(std::filesystem::exists(elsewhere));
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace caravan::io
