#include "caravan/batch/prompt_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <system_error>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "caravan/io/sha256.h"

namespace caravan::batch {
namespace {

namespace fs = std::filesystem;

enum class Format { kJsonl, kTextLines, kWholeText, kYaml };

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::int64_t kMaxYamlBytes = 64 * 1024 * 1024;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

struct OneFile {
  std::string path;     // as named; "-" for standard input
  std::string label;    // short name in messages and ids
  std::string storage;  // what is opened
  Format format = Format::kJsonl;
  std::vector<YamlPrompt> yaml;
};

std::optional<Format> format_of(const std::string& path, TextFiles text_files) {
  const std::string extension = fs::path(path).extension().string();
  if (extension == ".jsonl") return Format::kJsonl;
  if (extension == ".txt") {
    return text_files == TextFiles::kPromptPerLine ? Format::kTextLines : Format::kWholeText;
  }
  if (extension == ".yaml" || extension == ".yml") return Format::kYaml;
  return std::nullopt;
}

std::vector<std::string> files_of_folder(const std::string& folder, TextFiles text_files) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code type_error;
    if (entry->is_regular_file(type_error) && format_of(entry->path().string(), text_files)) {
      files.push_back(entry->path().string());
    }
  }
  CARAVAN_CHECK(!error, MissingInputError, "--input {}: cannot read the folder: {}", folder,
                error.message());
  CARAVAN_CHECK(!files.empty(), MissingInputError,
                "--input {}: the folder has no .jsonl, .txt or .yaml file", folder);
  std::sort(files.begin(), files.end());
  return files;
}

// Copies standard input to an unnamed place that can be read again; returns its path, which the
// caller opens and removes.
std::string spool_standard_input(const std::string& folder) {
  std::string name = fmt::format("{}/.caravan-stdin-XXXXXX", folder);
  const io::FileDescriptor file(::mkostemp(name.data(), O_CLOEXEC));
  CARAVAN_CHECK(file.get() >= 0, CannotCreateError,
                "cannot create a file for standard input in {}: {}", folder, std::strerror(errno));
  std::string buffer(kReadBytes, '\0');
  while (true) {
    const ssize_t got = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    const int cause = errno;
    if (got <= 0) {
      if (got < 0) ::unlink(name.c_str());
      CARAVAN_CHECK(got == 0, IoError, "reading standard input failed: {}", std::strerror(cause));
      return name;
    }
    for (ssize_t done = 0; done < got;) {
      const ssize_t put =
          ::write(file.get(), buffer.data() + done, static_cast<std::size_t>(got - done));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) {
        const int write_cause = errno;
        ::unlink(name.c_str());
        throw IoError(fmt::format("keeping standard input in {} failed: {}", folder,
                                  std::strerror(write_cause)));
      }
      done += put;
    }
  }
}

// Standard input is a batch file if its first visible character opens an object.
Format sniff(io::InputFile& file, TextFiles text_files) {
  std::string head;
  for (std::int64_t offset = 0; offset < file.size(); offset += std::ssize(head)) {
    head.resize(static_cast<std::size_t>(std::min<std::int64_t>(file.size() - offset, 4096)));
    file.read(offset, std::as_writable_bytes(std::span(head)));
    std::string_view text = head;
    if (offset == 0 && text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    const auto first = text.find_first_not_of(" \t\r\n");
    if (first == std::string_view::npos) continue;
    if (text[first] == '{') return Format::kJsonl;
    break;
  }
  return text_files == TextFiles::kPromptPerLine ? Format::kTextLines : Format::kWholeText;
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
}

std::string_view without_line_end(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

}  // namespace

struct PromptFiles::State {
  PromptFilesOptions options;
  std::vector<OneFile> files;
  std::optional<io::InputFile> open_file;
  std::int32_t open_index = -1;
  std::optional<io::InputFile> standard_input;  // stays open: its file has no name
  std::string content_hash;
  std::int64_t blank_lines = 0;
  std::int64_t total_bytes = 0;

  void add(const std::string& path, bool named_by_user);
  void add_standard_input();
  void check_distinct() const;
  void make_labels();
  io::InputFile& open(std::int32_t index);
  void scan_lines(std::int32_t index, io::Sha256& hash,
                  const std::function<void(const Seen&)>& use);
  void scan_whole(std::int32_t index, io::Sha256& hash,
                  const std::function<void(const Seen&)>& use);
  void scan_yaml(std::int32_t index, io::Sha256& hash, const std::function<void(const Seen&)>& use);
};

void PromptFiles::State::add(const std::string& path, bool named_by_user) {
  const auto format = format_of(path, options.text_files);
  CARAVAN_CHECK(format.has_value() || !named_by_user, UsageError,
                "--input {}: unknown kind of file; expected .jsonl (batch requests), .txt or .yaml",
                path);
  OneFile file;
  file.path = file.storage = path;
  file.format = *format;
  if (file.format == Format::kYaml) {
    file.yaml = parse_yaml_prompts(io::read_text_file(path, kMaxYamlBytes), path);
  }
  files.push_back(std::move(file));
}

void PromptFiles::State::add_standard_input() {
  OneFile file;
  file.path = "-";
  file.storage = spool_standard_input(options.spool_folder);
  try {
    standard_input.emplace(file.storage);
  } catch (...) {
    ::unlink(file.storage.c_str());
    throw;
  }
  ::unlink(file.storage.c_str());  // lives on through the open descriptor
  file.format = sniff(*standard_input, options.text_files);
  files.push_back(std::move(file));
}

void PromptFiles::State::check_distinct() const {
  std::set<std::string> seen;
  for (const OneFile& file : files) {
    CARAVAN_CHECK(seen.insert(file.path).second, UsageError, "--input {} is named twice",
                  file.path);
  }
}

void PromptFiles::State::make_labels() {
  std::map<std::string, int> uses;
  for (const OneFile& file : files) ++uses[fs::path(file.path).filename().string()];
  for (OneFile& file : files) {
    const std::string name = fs::path(file.path).filename().string();
    file.label = file.path == "-" ? "stdin" : uses[name] == 1 ? name : file.path;
  }
}

io::InputFile& PromptFiles::State::open(std::int32_t index) {
  if (files[static_cast<std::size_t>(index)].path == "-") return *standard_input;
  if (open_index != index) {
    open_file.emplace(files[static_cast<std::size_t>(index)].storage);
    open_index = index;
  }
  return *open_file;
}

void PromptFiles::State::scan_lines(std::int32_t index, io::Sha256& hash,
                                    const std::function<void(const Seen&)>& use) {
  // Not open(): `use` may ask for the text of an earlier record in another file.
  std::optional<io::InputFile> own;
  const OneFile& source = files[static_cast<std::size_t>(index)];
  io::InputFile& file = source.path == "-" ? *standard_input : own.emplace(source.storage);
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
    const RecordPlace place{offset, static_cast<std::int64_t>(text.size()), index, line};
    if (skipping || place.bytes > kMaxRecordBytes) {
      skipping = false;
      use({{place.offset, 0, index, line}, {}, true});
    } else if (is_blank(text)) {
      ++blank_lines;
    } else {
      use({place, text, false});
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
    if (static_cast<std::int64_t>(buffer.size()) > kMaxRecordBytes + 2) {
      skipping = true;
      buffer_offset += static_cast<std::int64_t>(buffer.size());
      buffer.clear();
    }
  }
  if (!buffer.empty() || skipping) take(buffer, buffer_offset);
  total_bytes += file.size();
}

void PromptFiles::State::scan_whole(std::int32_t index, io::Sha256& hash,
                                    const std::function<void(const Seen&)>& use) {
  // Not open(): `use` may ask for the text of an earlier record in another file.
  std::optional<io::InputFile> own;
  const OneFile& source = files[static_cast<std::size_t>(index)];
  io::InputFile& file = source.path == "-" ? *standard_input : own.emplace(source.storage);
  total_bytes += file.size();
  if (file.size() > kMaxRecordBytes) {
    hash.update(fmt::format("{} bytes", file.size()));
    use({{0, 0, index, 1}, {}, true});
    return;
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
  if (is_blank(content)) {
    ++blank_lines;
    return;
  }
  use({{offset, static_cast<std::int64_t>(content.size()), index, 1}, content, false});
}

void PromptFiles::State::scan_yaml(std::int32_t index, io::Sha256& hash,
                                   const std::function<void(const Seen&)>& use) {
  const OneFile& file = files[static_cast<std::size_t>(index)];
  for (std::size_t i = 0; i < file.yaml.size(); ++i) {
    const YamlPrompt& prompt = file.yaml[i];
    hash.update(fmt::format("{}\n{}:{}{}:{}", prompt.line, prompt.system.size(), prompt.system,
                            prompt.user.size(), prompt.user));
    total_bytes += checked_cast<std::int64_t>(prompt.user.size());
    use({{static_cast<std::int64_t>(i), 0, index, prompt.line}, prompt.user, false});
  }
}

PromptFiles::PromptFiles(const std::vector<std::string>& inputs, PromptFilesOptions options)
    : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
  for (const std::string& input : inputs) {
    if (input == "-") {
      state_->add_standard_input();
      continue;
    }
    std::error_code error;
    const fs::file_status status = fs::status(input, error);
    CARAVAN_CHECK(fs::exists(status), MissingInputError, "--input {}: no such file or folder",
                  input);
    if (fs::is_directory(status)) {
      for (const std::string& path : files_of_folder(input, state_->options.text_files)) {
        state_->add(path, false);
      }
    } else {
      state_->add(input, true);
    }
  }
  state_->check_distinct();
  state_->make_labels();
}

PromptFiles::~PromptFiles() = default;
PromptFiles::PromptFiles(PromptFiles&&) noexcept = default;
PromptFiles& PromptFiles::operator=(PromptFiles&&) noexcept = default;

void PromptFiles::scan(const std::function<void(const Seen&)>& use) {
  state_->blank_lines = 0;
  state_->total_bytes = 0;
  io::Sha256 hash;
  for (std::size_t i = 0; i < state_->files.size(); ++i) {
    const auto index = static_cast<std::int32_t>(i);
    const OneFile& file = state_->files[i];
    if (file.format != Format::kJsonl) hash.update(file.label);  // ids of plain prompts have it
    switch (file.format) {
      case Format::kJsonl:
      case Format::kTextLines: state_->scan_lines(index, hash, use); break;
      case Format::kWholeText: state_->scan_whole(index, hash, use); break;
      case Format::kYaml: state_->scan_yaml(index, hash, use); break;
    }
  }
  state_->content_hash = hash.hex_digest();
}

std::string PromptFiles::text(const RecordPlace& place) {
  const OneFile& file = state_->files[static_cast<std::size_t>(place.file)];
  if (file.format == Format::kYaml) return file.yaml[static_cast<std::size_t>(place.offset)].user;
  std::string text(static_cast<std::size_t>(place.bytes), '\0');
  state_->open(place.file).read(place.offset, std::as_writable_bytes(std::span(text)));
  return text;
}

ParsedRecord PromptFiles::parse(const RecordPlace& place, std::string_view text,
                                const RequestParser& parser, std::string& custom_id) const {
  const OneFile& file = state_->files[static_cast<std::size_t>(place.file)];
  if (file.format == Format::kJsonl) return parser.parse_line(text, custom_id);
  custom_id = label(place);
  std::string system = state_->options.system;
  if (file.format == Format::kYaml) {
    const std::string& own = file.yaml[static_cast<std::size_t>(place.offset)].system;
    if (!own.empty()) system = own;
  }
  return parser.parse_plain(
      {custom_id, state_->options.text_endpoint, std::move(system), std::string(text)});
}

std::string PromptFiles::label(const RecordPlace& place) const {
  const OneFile& file = state_->files[static_cast<std::size_t>(place.file)];
  if (file.format == Format::kWholeText) return file.label;
  if (file.format == Format::kYaml) {
    const YamlPrompt& prompt = file.yaml[static_cast<std::size_t>(place.offset)];
    if (prompt.earlier_on_line > 0) {
      return fmt::format("{}:{}#{}", file.label, place.line, prompt.earlier_on_line + 1);
    }
  }
  return fmt::format("{}:{}", file.label, place.line);
}

std::vector<std::string> PromptFiles::paths() const {
  std::vector<std::string> paths;
  for (const OneFile& file : state_->files) paths.push_back(file.path);
  return paths;
}

const std::string& PromptFiles::content_hash() const { return state_->content_hash; }
std::int64_t PromptFiles::blank_lines() const { return state_->blank_lines; }
std::int64_t PromptFiles::total_bytes() const { return state_->total_bytes; }

}  // namespace caravan::batch
