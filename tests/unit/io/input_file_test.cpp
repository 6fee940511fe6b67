#include "caravan/io/input_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <span>
#include <string>

#include "caravan/core/error.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace caravan::io {
namespace {

using test::expect_error;
using test::TemporaryFolder;

std::string read_some(InputFile& file, std::int64_t offset, std::size_t count) {
  std::string text(count, '?');
  file.read(offset, std::as_writable_bytes(std::span(text.data(), text.size())));
  return text;
}

TEST(InputFile, ReadsAtAnyOffsetAndCountsBytes) {
  const TemporaryFolder folder;
  InputFile file(folder.write("a", "0123456789"));
  EXPECT_EQ(file.size(), 10);
  EXPECT_EQ(read_some(file, 7, 3), "789");
  EXPECT_EQ(read_some(file, 0, 2), "01");
  EXPECT_EQ(read_some(file, 10, 0), "");
  EXPECT_EQ(file.bytes_read(), 5);
}

TEST(InputFile, NamesFileAndOffsetWhenTheFileEndsEarly) {
  const TemporaryFolder folder;
  InputFile file(folder.write("short", "0123456789"));
  expect_error<IoError>([&] { read_some(file, 6, 8); },
                        "short ends at byte 10, expected 4 more bytes");
}

TEST(InputFile, GoesOnAfterInterruptedShortAndFailedReads) {
  const TemporaryFolder folder;
  int call = 0;
  InputFile file(folder.write("a", "0123456789"),
                 [&](int descriptor, void* data, std::size_t, off_t offset) -> ssize_t {
                   switch (call++ % 3) {
                     case 0: errno = EINTR; return -1;
                     case 1: errno = call < 6 ? EIO : EINTR; return -1;
                     default: return ::pread(descriptor, data, 1, offset);
                   }
                 });
  EXPECT_EQ(read_some(file, 2, 5), "23456");
}

// pread(2) and some network file systems stop short at 2 GiB, and libraries count in 32 bits.
TEST(InputFile, ReadsMoreThanTwoGigabytesInPieces) {
  const TemporaryFolder folder;
  constexpr std::size_t kBytes = 2'200'000'000;
  const auto untouched = std::make_unique_for_overwrite<std::byte[]>(kBytes);  // takes no memory
  std::int64_t next = 5;
  InputFile file(folder.write("a", ""),
                 [&](int, void* data, std::size_t count, off_t offset) -> ssize_t {
                   EXPECT_LE(count, std::size_t{1} << 30);
                   EXPECT_EQ(offset, next);
                   EXPECT_EQ(data, untouched.get() + (next - 5));
                   next += static_cast<std::int64_t>(count);
                   return static_cast<ssize_t>(count);
                 });
  file.read(5, {untouched.get(), kBytes});
  EXPECT_EQ(next, 5 + static_cast<std::int64_t>(kBytes));
  EXPECT_EQ(file.bytes_read(), static_cast<std::int64_t>(kBytes));
}

TEST(InputFile, ShowsWhatIsReadToAnObserver) {
  const TemporaryFolder folder;
  InputFile file(folder.write("a", "0123456789"));
  std::string seen;
  file.observe([&](std::int64_t offset, std::span<const std::byte> bytes) {
    if (offset == 0) throw InputError("enough");
    seen += fmt::format("{}:{} ", offset,
                        std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  });
  read_some(file, 7, 3);
  EXPECT_THROW(read_some(file, 8, 4), IoError);  // ends early: not shown
  read_some(file, 2, 2);
  EXPECT_EQ(seen, "7:789 2:23 ");
  expect_error<InputError>([&] { read_some(file, 0, 1); }, "enough");
}

TEST(InputFile, GivesUpAfterRepeatedReadErrors) {
  const TemporaryFolder folder;
  int calls = 0;
  InputFile file(folder.write("bad", "0123456789"), [&](int, void*, std::size_t, off_t) -> ssize_t {
    ++calls;
    errno = EIO;
    return -1;
  });
  expect_error<IoError>([&] { read_some(file, 3, 4); }, "bad at byte 3 failed: Input/output error");
  EXPECT_EQ(calls, 4);
}

TEST(InputFile, RefusesMissingFilesAndFolders) {
  const TemporaryFolder folder;
  expect_error<MissingInputError>([&] { InputFile file(folder.file("none")); },
                                  "none: No such file or directory");
  expect_error<MissingInputError>([&] { InputFile file(folder.path()); }, "is a folder");
}

TEST(ReadTextFile, RefusesWhatIsTooLong) {
  const TemporaryFolder folder;
  const std::string path = folder.write("t", "text");
  EXPECT_EQ(read_text_file(path, 4), "text");
  expect_error<InputError>([&] { read_text_file(path, 3); }, "has 4 bytes, expected at most 3");
}

}  // namespace
}  // namespace caravan::io
