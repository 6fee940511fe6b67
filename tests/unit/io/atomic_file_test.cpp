#include "caravan/io/atomic_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
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

}  // namespace
}  // namespace caravan::io
