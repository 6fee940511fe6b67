#include "caravan/batch/prompt_files.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "caravan/core/faults.h"
#include "caravan/core/log.h"
#include "caravan/io/sha256.h"
#include "prompt_format.h"
#include "record_scan.h"
#include "standard_input.h"

namespace caravan::batch {
namespace {

namespace fs = std::filesystem;

using Format = PromptFormat;

constexpr std::int64_t kMaxYamlBytes = 64 * 1024 * 1024;

struct OneFile {
  std::string path;     // as named; "-" for standard input
  std::string label;    // short name in messages and ids
  std::string storage;  // what is opened
  Format format = Format::kJsonl;
  std::vector<YamlPrompt> yaml;
};

}  // namespace

struct PromptFiles::State {
  PromptFilesOptions options;
  std::vector<OneFile> files;
  std::vector<std::string> unreadable;
  std::optional<io::InputFile> open_file;
  std::int32_t open_index = -1;
  std::optional<io::InputFile> standard_input;  // stays open: its file has no name
  std::string content_hash;
  std::int64_t blank_lines = 0;
  std::int64_t total_bytes = 0;

  void add_input(const std::string& input);
  void add(const std::string& path);
  void add_standard_input();
  void parse_yaml(OneFile& file, const std::string& text);
  void check_distinct() const;
  void make_labels();
  io::InputFile& open(std::int32_t index);
  void scan_text(std::int32_t index, io::Sha256& hash, const std::function<void(const Seen&)>& use);
  void scan_yaml(std::int32_t index, io::Sha256& hash, const std::function<void(const Seen&)>& use);
};

void PromptFiles::State::add(const std::string& path) {
  auto format = format_of(path, options.text_files);
  if (!format) format = format_of(options.format, options.text_files);
  CARAVAN_CHECK(
      format.has_value(), UsageError,
      "--input {}: unknown kind of file; expected .jsonl (batch requests), .txt or .yaml, "
      "or --input-format to say which of them it is",
      path);
  // A pipe can be read once only, and opening one may wait for ever.
  CARAVAN_CHECK(fs::is_regular_file(path), UsageError,
                "--input {}: expected a regular file; for a pipe use --input - and redirect it",
                path);
  const io::InputFile readable(path);
  OneFile file;
  file.path = file.storage = path;
  file.format = *format;
  if (file.format == Format::kYaml) parse_yaml(file, io::read_text_file(path, kMaxYamlBytes));
  files.push_back(std::move(file));
}

void PromptFiles::State::parse_yaml(OneFile& file, const std::string& text) {
  try {
    file.yaml = parse_yaml_prompts(text, file.path == "-" ? "standard input" : file.path);
  } catch (const InputError& error) {
    const bool guessed = file.path == "-" && options.format == InputFormat::kAuto;
    unreadable.push_back(error.what() +
                         std::string(guessed ? " (--input-format txt if it is none)" : ""));
  }
}

void PromptFiles::State::add_standard_input() {
  CARAVAN_CHECK(!standard_input, UsageError, "--input - is named twice");
  OneFile file;
  file.path = "-";
  standard_input.emplace(spool_standard_input(options));
  CARAVAN_CHECK(standard_input->size() > 0, InputError,
                "--input -: standard input is closed or empty, expected prompts");
  if (const auto format = format_of(options.format, options.text_files)) {
    file.format = *format;
  } else {
    file.format = sniff_format(*standard_input, options.text_files);
    log::info("--input -: standard input looks like {}; --input-format says otherwise",
              format_name(file.format));
  }
  if (file.format == Format::kYaml) {
    CARAVAN_CHECK(standard_input->size() <= kMaxYamlBytes, InputError,
                  "--input -: standard input has {} bytes, YAML may have {}",
                  standard_input->size(), kMaxYamlBytes);
    std::string text(static_cast<std::size_t>(standard_input->size()), '\0');
    standard_input->read(0, std::as_writable_bytes(std::span(text)));
    parse_yaml(file, text);
  }
  files.push_back(std::move(file));
}

void PromptFiles::State::add_input(const std::string& input) {
  if (input == "-") {
    add_standard_input();
    return;
  }
  std::error_code error;
  const fs::file_status status = fs::status(input, error);
  CARAVAN_CHECK(status.type() != fs::file_type::none, MissingInputError, "--input {}: {}", input,
                error.message());
  CARAVAN_CHECK(fs::exists(status), MissingInputError, "--input {}: no such file or folder", input);
  if (!fs::is_directory(status)) {
    add(input);
    return;
  }
  Faults faults;
  for (const std::string& path : prompt_files_of(input, options.text_files)) {
    faults.attempt([&] { add(path); });
  }
  faults.require_none();
}

void PromptFiles::State::check_distinct() const {
  std::map<std::pair<dev_t, ino_t>, std::string> seen;
  for (const OneFile& file : files) {
    struct stat status = {};
    if (file.path == "-" || ::stat(file.storage.c_str(), &status) != 0) continue;
    const auto [first, fresh] = seen.try_emplace({status.st_dev, status.st_ino}, file.path);
    CARAVAN_CHECK(
        fresh, UsageError, "--input {}{}", file.path,
        first->second == file.path
            ? std::string(" is named twice")
            : fmt::format(" and {} are one file: its records would run twice", first->second));
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

void PromptFiles::State::scan_text(std::int32_t index, io::Sha256& hash,
                                   const std::function<void(const Seen&)>& use) {
  // Not open(): `use` may ask for the text of an earlier record in another file.
  std::optional<io::InputFile> own;
  const OneFile& source = files[static_cast<std::size_t>(index)];
  io::InputFile& file = source.path == "-" ? *standard_input : own.emplace(source.storage);
  const auto found = [&](const FoundRecord& record) {
    use({{record.offset, std::ssize(record.text), index, record.line},
         record.text,
         record.too_long});
  };
  blank_lines += source.format == Format::kWholeText ? scan_whole(file, hash, found)
                                                     : scan_lines(file, hash, found);
  total_bytes += file.size();
}

void PromptFiles::State::scan_yaml(std::int32_t index, io::Sha256& hash,
                                   const std::function<void(const Seen&)>& use) {
  const OneFile& file = files[static_cast<std::size_t>(index)];
  for (std::size_t i = 0; i < file.yaml.size(); ++i) {
    const YamlPrompt& prompt = file.yaml[i];
    hash.update(fmt::format("{}\n{}:{}{}:{}{}", prompt.line, prompt.system.size(), prompt.system,
                            prompt.user.size(), prompt.user, prompt.faults));
    for (const std::string& image : prompt.images) {
      hash.update(fmt::format("image {}:{}", image.size(), image));
    }
    total_bytes += checked_cast<std::int64_t>(prompt.user.size());
    use({{static_cast<std::int64_t>(i), 0, index, prompt.line}, prompt.user, false});
  }
}

PromptFiles::PromptFiles(const std::vector<std::string>& inputs, PromptFilesOptions options)
    : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
  Faults faults;
  for (const std::string& input : inputs) faults.attempt([&] { state_->add_input(input); });
  faults.attempt([&] { state_->check_distinct(); });
  faults.require_none();
  state_->make_labels();
}

PromptFiles::~PromptFiles() = default;
PromptFiles::PromptFiles(PromptFiles&&) noexcept = default;
PromptFiles& PromptFiles::operator=(PromptFiles&&) noexcept = default;

void PromptFiles::scan(const std::function<void(const Seen&)>& take) {
  const auto use = [&](const Seen& seen) {
    throw_if_stopped(state_->options.stop_requested, "checking the input");
    take(seen);
  };
  state_->blank_lines = 0;
  state_->total_bytes = 0;
  io::Sha256 hash;
  for (std::size_t i = 0; i < state_->files.size(); ++i) {
    const auto index = static_cast<std::int32_t>(i);
    const OneFile& file = state_->files[i];
    if (file.format != Format::kJsonl) hash.update(file.label);  // ids of plain prompts have it
    switch (file.format) {
      case Format::kJsonl:
      case Format::kTextLines:
      case Format::kWholeText: state_->scan_text(index, hash, use); break;
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
  PlainPrompt prompt{custom_id, state_->options.text_endpoint, state_->options.system,
                     std::string(text)};
  if (file.format == Format::kYaml) {
    const YamlPrompt& own = file.yaml[static_cast<std::size_t>(place.offset)];
    if (!own.faults.empty()) return RecordFault{400, "invalid_value", own.faults, ""};
    if (!own.system.empty()) prompt.system = own.system;
    prompt.images = own.images;
  }
  return parser.parse_plain(prompt);
}

std::string PromptFiles::folder(const RecordPlace& place) const {
  const OneFile& file = state_->files[static_cast<std::size_t>(place.file)];
  if (file.path == "-") return {};
  const std::string folder = fs::path(file.path).parent_path().string();
  return folder.empty() ? "." : folder;
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

const std::vector<std::string>& PromptFiles::unreadable() const { return state_->unreadable; }
const std::string& PromptFiles::content_hash() const { return state_->content_hash; }
std::int64_t PromptFiles::blank_lines() const { return state_->blank_lines; }
std::int64_t PromptFiles::total_bytes() const { return state_->total_bytes; }

}  // namespace caravan::batch
