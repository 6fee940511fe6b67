// The end of a journal: the output in input order, and the journal out of the way.

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <system_error>

#include "caravan/batch/journal.h"
#include "caravan/core/error.h"

namespace caravan::batch {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

bool has_content_at(io::InputFile& file, std::int64_t offset, const std::string& expected,
                    std::string& buffer) {
  buffer.resize(expected.size());
  file.read(offset, std::as_writable_bytes(std::span(buffer)));
  return buffer == expected;
}

}  // namespace

void Journal::each_piece(const std::function<bool(const std::string&)>& use) const {
  // The open file and not its name, which may be gone.
  io::FileDescriptor same(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
  CARAVAN_CHECK(static_cast<bool>(same), IoError, "reading {} failed: {}", path_,
                std::strerror(errno));
  io::InputFile source(path_, std::move(same));
  std::string buffer;
  for (const Slot& slot : slots_) {
    const auto old_size = buffer.size();
    buffer.resize(old_size + static_cast<std::size_t>(slot.bytes));
    source.read(slot.offset, std::as_writable_bytes(std::span(buffer).subspan(old_size)));
    buffer += '\n';
    if (buffer.size() < kPieceBytes) continue;
    if (!use(buffer)) return;
    buffer.clear();
  }
  use(buffer);
}

bool Journal::is_output(const std::string& path, const std::function<void()>& keep_alive) const {
  std::int64_t bytes = num_records();  // line ends
  for (const Slot& slot : slots_) bytes += slot.bytes;
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return false;
  io::InputFile file(path);
  if (file.size() != bytes) return false;
  bool equal = true;
  std::int64_t offset = 0;
  std::string found;
  each_piece([&](const std::string& piece) {
    equal = has_content_at(file, offset, piece, found);
    offset += static_cast<std::int64_t>(piece.size());
    if (keep_alive) keep_alive();
    return equal;
  });
  return equal;
}

void Journal::finish(const std::string& output, const std::function<void()>& keep_alive,
                     io::ExistingTarget existing) {
  CARAVAN_ASSERT(num_done_ == num_records(), "{} of {} records are done", num_done_, num_records());
  flush();
  io::remove_temporary_files(output);
  // A run that was ended behind its rename has left the whole output.
  if (existing == io::ExistingTarget::kKeep && is_output(output, keep_alive)) return;
  io::AtomicFile target(output);
  each_piece([&](const std::string& piece) {
    target.write(piece);
    if (keep_alive && piece.size() >= kPieceBytes) keep_alive();
    return true;
  });
  try {
    target.commit(existing);
  } catch (const CannotCreateError& error) {
    throw CannotCreateError(
        fmt::format("{}. All answers are kept in {}: move the other file away, or use --overwrite, "
                    "and run the same command again",
                    error.what(), path_));
  }
}

void Journal::remove() {
  const bool own = has_its_name();
  file_.reset();
  if (!own) return;
  std::error_code ignored;  // the output is complete; a journal left behind does no harm
  std::filesystem::remove(path_, ignored);
}

}  // namespace caravan::batch
