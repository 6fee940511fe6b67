#include "caravan/io/output_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "caravan/core/error.h"
#include "caravan/io/aligned_buffer.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace caravan::io {
namespace {

using test::expect_error;
using test::TemporaryFolder;

std::byte value_at(std::int64_t offset) {
  return static_cast<std::byte>((offset * 7 + offset / 4096) % 251);
}

void write_range(OutputFile& file, AlignedBuffer& buffer, std::int64_t begin, std::int64_t end) {
  const std::span<std::byte> bytes = buffer.resized(end - begin);
  for (std::int64_t i = begin; i < end; ++i)
    bytes[static_cast<std::size_t>(i - begin)] = value_at(i);
  file.write(begin, bytes);
}

void expect_values(InputFile& file, AlignedBuffer& buffer, std::int64_t begin, std::int64_t end) {
  const std::span<std::byte> bytes = buffer.resized(end - begin);
  file.read(begin, bytes);
  for (std::int64_t i = begin; i < end; ++i)
    ASSERT_EQ(bytes[static_cast<std::size_t>(i - begin)], value_at(i)) << "at byte " << i;
}

// Ranges that begin and end at blocks, within blocks, and share blocks with each other.
TEST(OutputFile, HoldsWhatThreadsWroteWhateverTheAlignment) {
  const TemporaryFolder folder;
  OutputFile file(folder.write("out", ""));
  const std::vector<std::int64_t> cuts = {0,     4096,  12288, 12289, 20480, 24000, 24001, 28672,
                                          40960, 45000, 49152, 65536, 65537, 90000, 98304, 100001};
  file.reserve(cuts.back());
  EXPECT_EQ(std::filesystem::file_size(file.path()), 100001U);
  std::vector<std::jthread> threads;
  for (std::size_t thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      AlignedBuffer buffer;
      for (std::size_t i = thread; i + 1 < cuts.size(); i += 3)
        write_range(file, buffer, cuts[i], cuts[i + 1]);
    });
  }
  threads.clear();
  file.sync();
  AlignedBuffer buffer;
  InputFile cached(file.path());
  expect_values(cached, buffer, 0, cuts.back());
  InputFile direct(file.path());
  direct.bypass_cache();
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
    expect_values(direct, buffer, cuts[i], cuts[i + 1]);
  EXPECT_EQ(direct.bytes_read(), cuts.back());
}

TEST(OutputFile, NamesFileAndOffsetWhenWritingFails) {
  expect_error<IoError>([] { OutputFile("/dev/full").write(8192, std::vector<std::byte>(5)); },
                        "writing 5 bytes of /dev/full at byte 8192 failed: No space left");
  expect_error<IoError>([] { OutputFile("/nowhere/out"); }, "cannot open /nowhere/out to write");
}

TEST(OutputFile, FindsOutBeforehandThatTheDiskIsTooSmall) {
  const TemporaryFolder folder;
  OutputFile file(folder.write("out", ""));
  expect_error<IoError>([&] { file.reserve(std::int64_t{1} << 52); }, "cannot reserve");
}

TEST(InputFile, BypassingTheCacheChangesNoErrors) {
  const TemporaryFolder folder;
  InputFile file(folder.write("short", std::string(5000, 'x')));
  file.bypass_cache();
  AlignedBuffer buffer;
  expect_error<IoError>([&] { file.read(0, buffer.resized(8192)); },
                        "short ends at byte 5000, expected 3192 more bytes");
}

}  // namespace
}  // namespace caravan::io
