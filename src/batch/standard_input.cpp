#include "standard_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "caravan/core/error.h"

namespace caravan::batch {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;

// Waits until standard input has something to read, or its end.
void wait_for_standard_input(const std::function<bool()>& stop_requested) {
  constexpr int kPatienceMs = 200;
  pollfd input{STDIN_FILENO, POLLIN, 0};
  do {
    throw_if_stopped(stop_requested, "reading standard input");
  } while (::poll(&input, 1, kPatienceMs) <= 0);
}

void write_all(const io::FileDescriptor& file, std::string_view text, const std::string& folder) {
  while (!text.empty()) {
    const ssize_t put = ::write(file.get(), text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    CARAVAN_CHECK(put >= 0, IoError, "keeping standard input in {} failed: {}", folder,
                  std::strerror(errno));
    text.remove_prefix(static_cast<std::size_t>(put));
  }
}

}  // namespace

void throw_if_stopped(const std::function<bool()>& stop_requested, std::string_view doing) {
  if (!stop_requested || !stop_requested()) return;
  throw Error(ExitCode::kTemporary,
              fmt::format("stopped by a signal while {}: nothing is lost; run the same command "
                          "again",
                          doing));
}

io::InputFile spool_standard_input(const PromptFilesOptions& options) {
  std::string name = options.spool_folder + "/.caravan-stdin-XXXXXX";
  io::FileDescriptor file(::mkostemp(name.data(), O_CLOEXEC));
  CARAVAN_CHECK(file.get() >= 0, CannotCreateError,
                "cannot create a file for standard input in {}: {}", options.spool_folder,
                std::strerror(errno));
  ::unlink(name.c_str());
  std::string buffer(kReadBytes, '\0');
  while (true) {
    wait_for_standard_input(options.stop_requested);
    const ssize_t got = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    CARAVAN_CHECK(got >= 0, IoError, "reading standard input failed: {}", std::strerror(errno));
    if (got == 0) return io::InputFile("standard input", std::move(file));
    write_all(file, std::string_view(buffer).substr(0, static_cast<std::size_t>(got)),
              options.spool_folder);
  }
}

}  // namespace caravan::batch
