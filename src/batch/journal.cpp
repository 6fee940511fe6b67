#include "caravan/batch/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>

#include "caravan/batch/response_writer.h"
#include "caravan/core/error.h"
#include "caravan/core/json_document.h"
#include "caravan/io/crc32c.h"
#include "json_text.h"

namespace caravan::batch {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::string_view kHeaderStart = "{\"caravan_journal\":1,\"fingerprint\":{";

std::uint32_t line_checksum(std::int64_t index, std::string_view line) {
  const std::string prefix = fmt::format("{}:", index);
  const auto over_index = io::crc32c(std::as_bytes(std::span(prefix)));
  return io::crc32c(std::as_bytes(std::span(line)), over_index);
}

std::string header_line(const Fingerprint& fingerprint) {
  std::string line(kHeaderStart);
  for (const auto& [name, value] : fingerprint) {
    if (line.back() != '{') line += ',';
    append_json_string(line, name);
    line += ':';
    append_json_string(line, value);
  }
  line += "}}\n";
  return line;
}

// {"index":7,"crc32c":"0a1b2c3d","line":{...}}
struct JournalLine {
  std::int64_t index = 0;
  std::uint32_t checksum = 0;
  std::string_view line;
};

bool skip(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

template <typename Number>
bool take_number(std::string_view& text, Number& number, int base) {
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (fault != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

std::optional<JournalLine> parse_line(std::string_view text) {
  JournalLine parsed;
  if (!skip(text, "{\"index\":") || !take_number(text, parsed.index, 10)) return std::nullopt;
  if (!skip(text, ",\"crc32c\":\"") || !take_number(text, parsed.checksum, 16)) return std::nullopt;
  if (!skip(text, "\",\"line\":") || !text.ends_with('}')) return std::nullopt;
  text.remove_suffix(1);
  parsed.line = text;
  return parsed;
}

// A line that was damaged or torn is no finished record.
void refuse_records_of_another_run(const std::string& path, std::string_view line,
                                   const std::string& differences) {
  const auto parsed = parse_line(line);
  if (!parsed || line_checksum(parsed->index, parsed->line) != parsed->checksum) return;
  throw ConfigError(
      fmt::format("{} belongs to another run; it can only be continued with the same input, model "
                  "and defaults:{}\nRun the earlier command again, choose another --output, or "
                  "remove that file to start anew",
                  path, differences));
}

}  // namespace

Journal::Journal(std::string path, const Fingerprint& fingerprint, std::int64_t num_records)
    : path_(std::move(path)), slots_(static_cast<std::size_t>(num_records)) {
  file_ = io::FileDescriptor(::open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
  CARAVAN_CHECK(file_.get() >= 0, CannotCreateError, "cannot create {}: {}", path_,
                std::strerror(errno));
  load(fingerprint);
  if (end_ == 0) create(fingerprint);
  num_found_ = num_done_;
}

bool Journal::has(std::int64_t index) const {
  return slots_[static_cast<std::size_t>(index)].offset >= 0;
}

void Journal::create(const Fingerprint& fingerprint) {
  cut(0);
  const std::string header = header_line(fingerprint);
  write_all(header);
  end_ = static_cast<std::int64_t>(header.size());
  dirty_ = true;
  sync();
}

void Journal::load(const Fingerprint& fingerprint) {
  io::InputFile file(path_);
  std::string buffer;
  std::string differences;  // from the run that the journal belongs to
  std::int64_t position = 0;
  while (position < file.size()) {
    const auto old_size = buffer.size();
    const auto want =
        static_cast<std::size_t>(std::min<std::int64_t>(kReadBytes, file.size() - position));
    buffer.resize(old_size + want);
    file.read(position, std::as_writable_bytes(std::span(buffer).subspan(old_size)));
    position += static_cast<std::int64_t>(want);
    std::size_t begin = 0;
    for (auto end = buffer.find('\n', old_size); end != std::string::npos;
         end = buffer.find('\n', begin)) {
      const auto line = std::string_view(buffer).substr(begin, end - begin);
      if (end_ == 0) {
        differences = header_differences(line, fingerprint);
      } else if (differences.empty()) {
        load_line(line, end_);
      } else {
        refuse_records_of_another_run(path_, line, differences);
      }
      end_ += static_cast<std::int64_t>(line.size()) + 1;
      begin = end + 1;
    }
    buffer.erase(0, begin);
  }
  if (end_ == 0 && !buffer.empty()) {  // a header that was cut short, unless it is something else
    const auto length = std::min(buffer.size(), kHeaderStart.size());
    CARAVAN_CHECK(buffer.compare(0, length, kHeaderStart, 0, length) == 0, ConfigError,
                  "{} exists and is not a journal of this program: move it away", path_);
  }
  if (!differences.empty()) end_ = 0;  // nothing is lost: begun anew
  if (!buffer.empty()) cut(end_);      // a torn last line: its record runs again
}

void Journal::load_line(std::string_view line, std::int64_t offset) {
  const auto parsed = parse_line(line);
  const bool good = parsed && parsed->index >= 0 && parsed->index < num_records() &&
                    line_checksum(parsed->index, parsed->line) == parsed->checksum;
  if (!good) {
    ++num_dropped_;
    return;
  }
  Slot& slot = slots_[static_cast<std::size_t>(parsed->index)];
  if (slot.offset >= 0) return;
  slot.offset = offset + (parsed->line.data() - line.data());
  slot.bytes = static_cast<std::int64_t>(parsed->line.size());
  ++num_done_;
  if (is_error_line(parsed->line)) ++num_errors_;
}

std::string Journal::header_differences(std::string_view line,
                                        const Fingerprint& fingerprint) const {
  Json header;
  try {
    header = parse_json(line, path_);
  } catch (const JsonFault&) {  // stays null: not what this program writes
  }
  CARAVAN_CHECK(
      line.starts_with(kHeaderStart) && header.is_object() && header["fingerprint"].is_object(),
      ConfigError, "{} exists and is not a journal of this program: move it away", path_);
  Fingerprint found;
  for (const auto& [name, value] : header["fingerprint"].items()) {
    found[name] = value.is_string() ? value.get<std::string>() : short_json(value);
  }
  std::string differences;
  for (const auto& [name, value] : fingerprint) {
    const auto other = found.find(name);
    if (other != found.end() && other->second == value) continue;
    differences += fmt::format("\n{}: the journal has {}, this run has {}", name,
                               other == found.end() ? "nothing" : other->second, value);
  }
  for (const auto& [name, value] : found) {
    if (!fingerprint.contains(name))
      differences += fmt::format("\n{}: only the journal has it ({})", name, value);
  }
  return differences;
}

void Journal::write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(file_.get(), text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      const int cause = errno;
      cut(end_);
      throw IoError(
          fmt::format("writing {} failed with {} of {} records done: {}. These records are kept: "
                      "make room and run the same command again",
                      path_, num_done_, num_records(), std::strerror(cause)));
    }
    text.remove_prefix(static_cast<std::size_t>(put));
  }
}

void Journal::cut(std::int64_t size) {
  // Best effort: a line that stays torn is cut when the journal is opened again.
  while (::ftruncate(file_.get(), size) != 0 && errno == EINTR) {
  }
}

void Journal::append(std::int64_t index, std::string_view line) {
  CARAVAN_ASSERT(!has(index), "record {} is in the journal already", index);
  std::string text = fmt::format("{{\"index\":{},\"crc32c\":\"{:08x}\",\"line\":", index,
                                 line_checksum(index, line));
  const auto prefix_bytes = static_cast<std::int64_t>(text.size());
  text += line;
  text += "}\n";
  write_all(text);
  slots_[static_cast<std::size_t>(index)] = {end_ + prefix_bytes,
                                             static_cast<std::int64_t>(line.size())};
  end_ += static_cast<std::int64_t>(text.size());
  ++num_done_;
  if (is_error_line(line)) ++num_errors_;
  dirty_ = true;
}

// Whether path_ is the file that is open. A name that cannot be looked up right now is no proof.
bool Journal::has_its_name() const {
  struct stat named = {};
  struct stat open = {};
  if (::stat(path_.c_str(), &named) != 0) return errno != ENOENT && errno != ENOTDIR;
  if (::fstat(file_.get(), &open) != 0) return true;
  return named.st_dev == open.st_dev && named.st_ino == open.st_ino;
}

void Journal::sync() {
  flush();
  CARAVAN_CHECK(
      num_done_ == num_records() || has_its_name(), IoError,
      "{} was deleted, moved or replaced while this run was adding to it, with {} of {} records "
      "done. If it was moved, move it back; then run the same command again, which runs the "
      "records "
      "that are not in it",
      path_, num_done_, num_records());
}

void Journal::flush() {
  if (!dirty_) return;
  CARAVAN_CHECK(::fdatasync(file_.get()) == 0, IoError, "syncing {} failed: {}", path_,
                std::strerror(errno));
  dirty_ = false;
}

}  // namespace caravan::batch
