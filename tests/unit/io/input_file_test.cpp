#include "caravan/io/input_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>

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
