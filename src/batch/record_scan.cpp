#include "record_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>

#include "caravan/batch/request_parser.h"
#include "prompt_format.h"

namespace caravan::batch {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
}

std::string_view without_line_end(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::int64_t scan_lines(io::InputFile& file, io::Sha256& hash, const UseRecord& use) {
  std::int64_t blank_lines = 0;
  std::string buffer;
  std::int64_t buffer_offset = 0;  // of buffer[0] in the file
  std::int64_t position = 0;       // next byte to read
  std::int32_t line = 0;
  bool skipping = false;  // inside a line that is longer than allowed
  const auto take = [&](std::string_view text, std::int64_t offset) {
    ++line;
    if (offset == 0 && text.starts_with(kByteOrderMark)) {
      text.remove_prefix(kByteOrderMark.size());
      offset += static_cast<std::int64_t>(kByteOrderMark.size());
    }
    text = without_line_end(text);
    if (skipping || std::ssize(text) > kMaxRecordBytes) {
      skipping = false;
      use({offset, line, {}, true});
    } else if (is_blank(text)) {
      ++blank_lines;
    } else {
      use({offset, line, text, false});
    }
  };
  while (position < file.size()) {
    const auto old_size = buffer.size();
    const auto want =
        static_cast<std::size_t>(std::min<std::int64_t>(kReadBytes, file.size() - position));
    buffer.resize(old_size + want);
    const auto fresh = std::span(buffer).subspan(old_size);
    file.read(position, std::as_writable_bytes(fresh));
    hash.update(std::as_bytes(fresh));
    position += static_cast<std::int64_t>(want);
    std::size_t begin = 0;
    for (auto end = buffer.find('\n', old_size); end != std::string::npos;
         end = buffer.find('\n', begin)) {
      take(std::string_view(buffer).substr(begin, end + 1 - begin),
           buffer_offset + static_cast<std::int64_t>(begin));
      begin = end + 1;
    }
    buffer.erase(0, begin);
    buffer_offset += static_cast<std::int64_t>(begin);
    if (std::ssize(buffer) > kMaxRecordBytes + 2) {
      skipping = true;
      buffer_offset += std::ssize(buffer);
      buffer.clear();
    }
  }
  if (!buffer.empty() || skipping) take(buffer, buffer_offset);
  return blank_lines;
}

std::int64_t scan_whole(io::InputFile& file, io::Sha256& hash, const UseRecord& use) {
  if (file.size() > kMaxRecordBytes) {
    hash.update(fmt::format("{} bytes", file.size()));
    use({0, 1, {}, true});
    return 0;
  }
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  hash.update(text);
  std::string_view content = without_line_end(text);
  std::int64_t offset = 0;
  if (content.starts_with(kByteOrderMark)) {
    content.remove_prefix(kByteOrderMark.size());
    offset = static_cast<std::int64_t>(kByteOrderMark.size());
  }
  if (is_blank(content)) return 1;
  use({offset, 1, content, false});
  return 0;
}

}  // namespace caravan::batch
