#include "caravan/image/image_source.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "caravan/core/error.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace caravan::image {
namespace {

using test::expect_error;

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string read_data(const std::string& base64, std::int64_t max_bytes = 1000) {
  return text_of(ImageSource("", max_bytes).read("data:image/png;base64," + base64));
}

void expect_refused(const ImageSource& source, const std::string& url, const std::string& words) {
  SCOPED_TRACE(url);
  expect_error<InputError>([&] { source.read(url); }, words);
}

TEST(DataUri, DecodesEveryLengthOfPadding) {
  EXPECT_EQ(read_data("TQ=="), "M");
  EXPECT_EQ(read_data("TWE="), "Ma");
  EXPECT_EQ(read_data("TWFu"), "Man");
  EXPECT_EQ(read_data("TWFuTWFuTQ=="), "ManManM");
  EXPECT_EQ(read_data("+/+/"), "\xfb\xff\xbf");
}

TEST(DataUri, IgnoresMediaTypeAndCaseOfTheScheme) {
  const ImageSource source("", 1000);
  EXPECT_EQ(text_of(source.read("DATA:;BASE64,TWFu")), "Man");
  EXPECT_EQ(text_of(source.read("data:text/html;charset=utf-8;base64,TWFu")), "Man");
}

TEST(DataUri, RefusesWhatIsNotStrictBase64) {
  for (const char* text :
       {"TW u", "TW\tu", "TW-u", "TW_u", "T=Fu", "====", "TWFu=TQ=", "TW\xc3\xa4"})
    expect_error<InputError>([&] { read_data(text); }, "of the base64 data is");
  for (const char* text : {"TWF", "TQ", "TWFuT", "TQ="})
    expect_error<InputError>([&] { read_data(text); }, "expected a multiple of 4");
  expect_error<InputError>([&] { read_data("TR=="); }, "bits that belong to no byte");
  expect_error<InputError>([&] { read_data("TWF="); }, "bits that belong to no byte");
}

TEST(DataUri, MayHaveLineBreaks) {
  EXPECT_EQ(read_data("TWFu\nTWFu\r\nTQ=\n=\n", 7), "ManManM");
  expect_error<InputError>([&] { read_data("TWFu\nTWFu", 5); }, "the limit is 5");
}

TEST(DataUri, NamesThePositionOfABadCharacter) {
  expect_error<InputError>([&] { read_data("TWFuTW\x1b="); }, "character 7 of the base64 data is");
}

TEST(DataUri, RefusesOtherEncodings) {
  const ImageSource source("", 1000);
  for (const char* url :
       {"data:image/png,abc", "data:", "data:image/png;base64", "data:;base64x,TWFu"})
    expect_refused(source, url, "only base64 is accepted");
  expect_refused(source, "data:image/png;base64,", "empty (0 bytes)");
}

TEST(DataUri, LimitsBytesBeforeDecoding) {
  EXPECT_EQ(read_data("TWFuTWFu", 6), "ManMan");
  expect_error<InputError>([&] { read_data("TWFuTWFu", 5); }, "the limit is 5");
  const std::string long_but_broken(4000, '!');
  expect_error<InputError>([&] { read_data(long_but_broken, 100); }, "the limit is 100");
}

TEST(ImageSource, NamesWhatToDoInsteadOfTheNetwork) {
  const ImageSource source("", 1000);
  for (const char* url : {"http://host/a.png", "https://host/a.png", "HTTPS://host/a.png"})
    expect_refused(source, url, "a compute node has no network");
  expect_refused(source, "s3://bucket/a.png", "s3:// addresses cannot be read");
  expect_refused(source, "", "no address");
}

class MediaRoot : public testing::Test {
 protected:
  MediaRoot() {
    std::filesystem::create_directories(folder_.file("root/sub"));
    folder_.write("root/a.png", "inside");
    folder_.write("root/sub/b b%.png", "deeper");
    folder_.write("secret.png", "outside");
  }
  std::string read(const std::string& url) { return text_of(source().read(url)); }
  ImageSource source() { return ImageSource(folder_.file("root"), 1000); }
  std::string path(const std::string& name) { return folder_.file(name); }

  test::TemporaryFolder folder_;
};

TEST_F(MediaRoot, ReadsRelativeAbsoluteAndFileAddresses) {
  EXPECT_EQ(read("a.png"), "inside");
  EXPECT_EQ(read("./sub/../a.png"), "inside");
  EXPECT_EQ(read("sub/b b%.png"), "deeper");
  EXPECT_EQ(read(path("root/a.png")), "inside");
  EXPECT_EQ(read("file://" + path("root/sub/b%20b%25.png")), "deeper");
  EXPECT_EQ(read("FILE://localhost" + path("root/a.png")), "inside");
}

TEST_F(MediaRoot, FollowsLinksThatStayInside) {
  std::filesystem::create_symlink("a.png", path("root/link.png"));
  std::filesystem::create_symlink(path("root/sub"), path("root/absolute"));
  std::filesystem::create_directory_symlink(path("root"), path("alias"));
  EXPECT_EQ(read("link.png"), "inside");
  EXPECT_EQ(read("absolute/b b%.png"), "deeper");
  EXPECT_EQ(text_of(ImageSource(path("alias"), 1000).read("a.png")), "inside");
  EXPECT_EQ(text_of(ImageSource(path("alias"), 1000).read(path("alias/a.png"))), "inside");
}

TEST_F(MediaRoot, RefusesEveryWayOut) {
  std::filesystem::create_symlink(path("secret.png"), path("root/out.png"));
  std::filesystem::create_directory_symlink("..", path("root/up"));
  std::filesystem::create_directories(path("root-twin"));
  folder_.write("root-twin/c.png", "outside");
  const ImageSource root = source();
  for (const std::string& url :
       {std::string("../secret.png"), std::string("sub/../../secret.png"), std::string("out.png"),
        std::string("up/secret.png"), path("secret.png"), path("root/../secret.png"),
        path("root-twin/c.png"), std::string("../root-twin/c.png"), std::string("/etc/passwd"),
        std::string("file:///etc/passwd"), "file://" + path("root/%2e%2e/secret.png")})
    expect_refused(root, url, "not below the media root");
}

TEST_F(MediaRoot, TellsNothingOfFilesOutside) {
  expect_refused(source(), "../no-such-file", "not below the media root");
  expect_refused(source(), "/no/such/file", "not below the media root");
}

TEST_F(MediaRoot, RefusesAllButRegularFiles) {
  ASSERT_EQ(::mkfifo(path("root/pipe").c_str(), 0600), 0);
  expect_refused(source(), "pipe", "found a named pipe");
  expect_refused(source(), "sub", "found a folder");
  expect_refused(source(), ".", "found a folder");
  expect_refused(ImageSource("/dev", 1000), "null", "found a device");
  expect_refused(source(), "missing.png", "No such file");
  expect_refused(source(), "a.png/b", "Not a directory");
}

TEST_F(MediaRoot, LimitsBytesBeforeReading) {
  folder_.write("root/empty.png", "");
  std::filesystem::resize_file(folder_.write("root/huge.png", ""), std::uintmax_t{1} << 40);
  expect_refused(source(), "huge.png", "1099511627776 bytes, the limit is 1000");
  expect_refused(source(), "empty.png", "empty (0 bytes)");
}

TEST_F(MediaRoot, RefusesStrangePaths) {
  expect_refused(source(), std::string("a.png\0.txt", 10), "zero byte");
  expect_refused(source(), std::string(5000, 'a'), "longer than 4096 bytes");
  expect_refused(source(), "file://host/a.png", "file:///absolute/path");
  expect_refused(source(), "file:///a%2", "two hexadecimal digits");
  expect_refused(source(), "file:///a%+1", "two hexadecimal digits");
  expect_refused(source(), "file:///a%00b", "zero byte");
}

TEST(ImageSource, RefusesFilesWithoutAMediaRoot) {
  expect_refused(ImageSource("", 1000), "a.png", "no --media-root");
}

TEST(ImageSource, RefusesARootThatIsNoFolder) {
  const test::TemporaryFolder folder;
  expect_error<MissingInputError>([&] { ImageSource(folder.file("none"), 1000); }, "No such file");
  expect_error<MissingInputError>([&] { ImageSource(folder.write("file", "x"), 1000); },
                                  "Not a directory");
}

TEST(ImageSource, DescribesAddressesInOneShortLine) {
  EXPECT_EQ(describe_source("data:image/png;base64,TWFu"), "data: URI of 26 characters");
  EXPECT_EQ(describe_source("a\nb.png"), "a\\nb.png");
  EXPECT_LT(describe_source(std::string(100000, 'x')).size(), 300U);
}

// What may be gone the next time must not become an answer.
TEST(ImageFile, ThatTheFileSystemCannotReadIsNoFaultOfTheRecord) {
  const test::TemporaryFolder folder;
  folder.write("a.png", "content");
  const ImageSource failing(folder.path(), 1000, [](int, void*, std::size_t, off_t) -> ssize_t {
    errno = EIO;
    return -1;
  });
  expect_error<IoError>([&] { failing.read("a.png"); }, "a.png at byte 0 failed");
  const ImageSource shortened(folder.path(), 1000,
                              [](int, void*, std::size_t, off_t) -> ssize_t { return 0; });
  expect_error<IoError>([&] { shortened.read("a.png"); }, "the file was truncated");
}

TEST(ImageFile, WithoutADescriptorLeftIsNoFaultOfTheRecord) {
  const test::TemporaryFolder folder;
  folder.write("a.png", "content");
  const ImageSource source(folder.path(), 1000);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  expect_error<IoError>([&] { source.read("a.png"); },
                        "the image file a.png cannot be opened: Too many open files");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(text_of(source.read("a.png")), "content");
}

}  // namespace
}  // namespace caravan::image
