#include "caravan/image/image_source.h"

#include <fcntl.h>
#include <linux/limits.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#if __has_include(<linux/openat2.h>)
#include <linux/openat2.h>
#endif

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "base64.h"
#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "caravan/core/log.h"

namespace caravan::image {
namespace {

constexpr std::size_t kShownCharacters = 200;

std::string error_text(int number) { return std::generic_category().message(number); }

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

bool is_data_uri(std::string_view url) { return lower(url.substr(0, 5)) == "data:"; }

/// `http` of `http://host/...`, in lower case; nothing if `url` is no address of that form.
std::optional<std::string> scheme_of(std::string_view url) {
  const std::size_t end = url.find("://");
  if (end == std::string_view::npos || end == 0) return std::nullopt;
  const std::string scheme = lower(url.substr(0, end));
  const bool is_scheme = std::all_of(scheme.begin(), scheme.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '+' || c == '-' || c == '.';
  });
  return is_scheme ? std::optional(scheme) : std::nullopt;
}

std::string percent_decode(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += text[i];
      continue;
    }
    const std::string digits(text.substr(i + 1, 2));
    CARAVAN_CHECK(digits.size() == 2 && std::isxdigit(static_cast<unsigned char>(digits[0])) != 0 &&
                      std::isxdigit(static_cast<unsigned char>(digits[1])) != 0,
                  InputError, "\"%\" without two hexadecimal digits in a file:// address");
    result += static_cast<char>(std::stoi(digits, nullptr, 16));
    i += 2;
  }
  return result;
}

/// Path of `file:///path` and `file://localhost/path`.
std::string path_of_file_uri(std::string_view url) {
  std::string_view rest = url.substr(std::string_view("file://").size());
  if (lower(rest.substr(0, 10)) == "localhost/") rest.remove_prefix(9);
  CARAVAN_CHECK(rest.starts_with('/'), InputError,
                "a file:// address must be file:///absolute/path (no host)");
  return percent_decode(rest);
}

std::vector<std::byte> read_data_uri(std::string_view url, std::int64_t max_bytes) {
  const std::size_t comma = url.find(',');
  CARAVAN_CHECK(comma != std::string_view::npos && lower(url.substr(0, comma)).ends_with(";base64"),
                InputError, "expected data:image/...;base64,<data>: only base64 is accepted");
  std::string_view text = url.substr(comma + 1);
  std::string joined;  // many encoders break lines, as mail does
  if (text.find_first_of("\r\n") != std::string_view::npos) {
    std::copy_if(text.begin(), text.end(), std::back_inserter(joined),
                 [](char c) { return c != '\r' && c != '\n'; });
    text = joined;
  }
  CARAVAN_CHECK(std::cmp_less_equal(text.size() / 4 * 3, max_bytes + 2), InputError,
                "the image has about {} bytes, the limit is {}", text.size() / 4 * 3, max_bytes);
  return decode_base64(text);
}

struct FreeDeleter {
  void operator()(char* text) const { ::free(text); }
};

/// Absolute path without links; nothing (and errno) if it does not exist.
std::optional<std::string> canonical(const std::string& path) {
  const std::unique_ptr<char, FreeDeleter> resolved(::realpath(path.c_str(), nullptr));
  return resolved ? std::optional<std::string>(resolved.get()) : std::nullopt;
}

/// Opens `path`, which has no links, below `root`. Where the kernel has openat2 (since 5.6, not in
/// every container), it checks that once more while it opens, for a folder that is swapped for a
/// link meanwhile.
io::FileDescriptor open_below(int root, const std::string& path) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
#if __has_include(<linux/openat2.h>)
  open_how how = {};
  how.flags = kFlags;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  io::FileDescriptor file(
      static_cast<int>(::syscall(SYS_openat2, root, path.c_str(), &how, sizeof(how))));
  if (file || (errno != ENOSYS && errno != EPERM)) return file;
#endif
  return io::FileDescriptor(::openat(root, path.c_str(), kFlags));
}

/// Without `.`, `..` and doubled slashes, as text alone.
std::string lexically_normal(const std::string& path) {
  return std::filesystem::path(path).lexically_normal().string();
}

bool is_below(const std::string& root, const std::string& path) {
  return path == root || path.starts_with(root + "/");
}

/// Whether the error says something of a file and the way to it. Any other is of the file system or
/// of this process, and may be gone the next time.
bool is_of_the_file(int number) {
  switch (number) {
    case EACCES:
    case EINVAL:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENOENT:
    case ENOTDIR:
    case ENXIO:
    case EPERM:
    case EXDEV: return true;
    default: return false;
  }
}

[[noreturn]] void refuse_to_open(const std::string& path, int number, const std::string& where) {
  CARAVAN_CHECK(is_of_the_file(number), IoError,
                "the image file {} cannot be opened: {}. Finished records are kept: run the same "
                "command again",
                log::escape_line(path), error_text(number));
  throw InputError(fmt::format("the image file cannot be opened: {}{}", error_text(number), where));
}

const char* kind_text(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a named pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

std::string describe_source(std::string_view url) {
  if (is_data_uri(url)) return fmt::format("data: URI of {} characters", url.size());
  if (url.size() <= kShownCharacters) return log::escape_line(url);
  return fmt::format("{}... ({} characters)", log::escape_line(url.substr(0, kShownCharacters)),
                     url.size());
}

ImageSource::ImageSource(const std::string& media_root, std::int64_t max_bytes,
                         io::InputFile::ReadFunction read)
    : max_bytes_(max_bytes), read_(std::move(read)) {
  CARAVAN_ASSERT(max_bytes > 0, "limit of {} bytes", max_bytes);
  if (media_root.empty()) return;
  const std::optional<std::string> folder = canonical(media_root);
  const int number = errno;
  if (folder) root_ = io::FileDescriptor(::open(folder->c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  CARAVAN_CHECK(root_, MissingInputError, "the media root {} is not a folder that can be used: {}",
                media_root, error_text(folder ? errno : number));
  media_root_ = *folder == "/" ? "" : *folder;
}

std::vector<std::byte> ImageSource::read(std::string_view url) const {
  CARAVAN_CHECK(!url.empty(), InputError,
                "the image has no address: expected a data: URI or the path of a file");
  std::vector<std::byte> bytes;
  if (is_data_uri(url)) {
    bytes = read_data_uri(url, max_bytes_);
  } else if (const std::optional<std::string> scheme = scheme_of(url)) {
    CARAVAN_CHECK(scheme == "file", InputError,
                  "{}:// addresses cannot be read: a compute node has no network. Download the "
                  "image first and give its path below --media-root, or put it into the request "
                  "as data:image/...;base64,<data>",
                  *scheme);
    bytes = read_file(path_of_file_uri(url));
  } else {
    bytes = read_file(std::string(url));
  }
  CARAVAN_CHECK(!bytes.empty(), InputError, "the image is empty (0 bytes)");
  CARAVAN_CHECK(std::cmp_less_equal(bytes.size(), max_bytes_), InputError,
                "the image has {} bytes, the limit is {}", bytes.size(), max_bytes_);
  return bytes;
}

std::string ImageSource::canonical_below_root(const std::string& path) const {
  CARAVAN_CHECK(root_, InputError,
                "files are not accepted as images here: there is no --media-root");
  CARAVAN_CHECK(path.find('\0') == std::string::npos && path.size() < PATH_MAX, InputError,
                "the path of the image is longer than {} bytes or contains a zero byte", PATH_MAX);
  const std::string full = path.starts_with('/') ? path : media_root_ + "/" + path;
  const std::optional<std::string> real = canonical(full);
  const int number = errno;
  // Only for what would lie inside: whether something outside exists is nobody's business.
  if (!real && is_below(media_root_, lexically_normal(full)))
    refuse_to_open(path, number, fmt::format(" (media root: {}/)", media_root_));
  CARAVAN_CHECK(real && is_below(media_root_, *real), InputError,
                "the image file is not below the media root {}/: move it there, or run with "
                "another --media-root",
                media_root_);
  return *real == media_root_ ? "." : real->substr(media_root_.size() + 1);
}

std::vector<std::byte> ImageSource::read_file(const std::string& path) const {
  const std::string below_root = canonical_below_root(path);
  io::FileDescriptor file = open_below(root_.get(), below_root);
  if (!file) refuse_to_open(path, errno, "");
  struct stat status = {};
  CARAVAN_CHECK(::fstat(file.get(), &status) == 0, IoError,
                "the image file {} cannot be queried: {}", log::escape_line(path),
                error_text(errno));
  CARAVAN_CHECK(S_ISREG(status.st_mode), InputError, "expected an image file, found {}",
                kind_text(status.st_mode));
  CARAVAN_CHECK(status.st_size <= max_bytes_, InputError, "the image has {} bytes, the limit is {}",
                status.st_size, max_bytes_);
  std::vector<std::byte> bytes(checked_cast<std::size_t>(status.st_size));
  io::InputFile(log::escape_line(path), std::move(file), read_).read(0, bytes);
  return bytes;
}

}  // namespace caravan::image
