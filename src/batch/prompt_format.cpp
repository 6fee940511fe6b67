#include "prompt_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <span>
#include <system_error>

#include "caravan/core/error.h"
#include "caravan/core/log.h"

namespace caravan::batch {
namespace {

namespace fs = std::filesystem;

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// The beginning of a file from its first visible character on.
std::string first_lines(io::InputFile& file) {
  constexpr std::int64_t kHeadBytes = 64 * 1024;
  std::string head;
  for (std::int64_t offset = 0; offset < file.size(); offset += std::ssize(head)) {
    head.resize(static_cast<std::size_t>(std::min(file.size() - offset, kHeadBytes)));
    file.read(offset, std::as_writable_bytes(std::span(head)));
    std::string_view text = head;
    if (offset == 0 && text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    const auto first = text.find_first_not_of(" \t\r\n");
    if (first != std::string_view::npos) return std::string(text.substr(first));
  }
  return {};
}

enum class Comments { kAreText, kArePassedOver };

// The first line with something on it, without the blanks around that.
std::string_view first_line(std::string_view text, Comments comments) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const auto first = line.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) continue;
    line = line.substr(first, line.find_last_not_of(" \t\r") + 1 - first);
    if (comments == Comments::kAreText || !line.starts_with('#')) return line;
  }
  return {};
}

bool opens_request(std::string_view line) {
  if (!line.starts_with('{')) return false;
  const auto next = line.find_first_not_of(" \t", 1);
  if (next == std::string_view::npos) return true;
  return std::string_view("\"'}").find(line[next]) != std::string_view::npos;  // ' is a slip for "
}

bool opens_yaml(std::string_view line) {
  if (line == "---" || line.starts_with("--- ")) return true;
  while (line.starts_with("- ")) {
    line.remove_prefix(1);
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(' ')));
  }
  if (line.starts_with('{'))
    line.remove_prefix(std::min(line.size(), line.find_first_not_of("{ ")));
  for (const std::string_view key : {"prompt:", "system:", "user:"}) {
    if (line.starts_with(key) && (line.size() == key.size() || line[key.size()] == ' '))
      return true;
  }
  return line == "-";
}

// One warning about what a folder holds beside prompt files.
void warn_of_passed_over(const std::string& folder, std::vector<std::string> names) {
  if (names.empty()) return;
  constexpr std::size_t kMostNamed = 10;
  std::sort(names.begin(), names.end());
  const std::size_t more = names.size() > kMostNamed ? names.size() - kMostNamed : 0;
  names.resize(names.size() - more);
  log::warning(
      "--input {}: not read, only .jsonl, .txt and .yaml files of the folder itself are: {}{}",
      folder, log::escape_line(fmt::format("{}", fmt::join(names, ", "))),
      more == 0 ? "" : fmt::format(" and {} more", more));
}

}  // namespace

std::optional<PromptFormat> format_of(const std::string& path, TextFiles text_files) {
  const std::string extension = lower_case(fs::path(path).extension().string());
  if (extension == ".jsonl") return PromptFormat::kJsonl;
  if (extension == ".txt") return format_of(InputFormat::kText, text_files);
  if (extension == ".yaml" || extension == ".yml") return PromptFormat::kYaml;
  return std::nullopt;
}

std::optional<PromptFormat> format_of(InputFormat format, TextFiles text_files) {
  switch (format) {
    case InputFormat::kAuto: return std::nullopt;
    case InputFormat::kJsonl: return PromptFormat::kJsonl;
    case InputFormat::kYaml: return PromptFormat::kYaml;
    case InputFormat::kText:
      return text_files == TextFiles::kPromptPerLine ? PromptFormat::kTextLines
                                                     : PromptFormat::kWholeText;
  }
  return std::nullopt;
}

PromptFormat sniff_format(io::InputFile& file, TextFiles text_files) {
  const std::string head = first_lines(file);
  if (opens_request(first_line(head, Comments::kAreText))) return PromptFormat::kJsonl;
  if (opens_yaml(first_line(head, Comments::kArePassedOver))) return PromptFormat::kYaml;
  return *format_of(InputFormat::kText, text_files);
}

std::string_view format_name(PromptFormat format) {
  switch (format) {
    case PromptFormat::kJsonl: return "batch requests (jsonl)";
    case PromptFormat::kTextLines: return "one prompt a line (txt)";
    case PromptFormat::kWholeText: return "one prompt (txt)";
    case PromptFormat::kYaml: return "prompts in YAML";
  }
  return "?";
}

std::vector<std::string> prompt_files_of(const std::string& folder, TextFiles text_files) {
  std::vector<std::string> files;
  std::vector<std::string> passed_over;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with('.')) continue;
    std::error_code type_error;
    const bool is_folder = entry->is_directory(type_error);
    if (!is_folder && format_of(name, text_files)) {
      files.push_back(entry->path().string());
    } else {
      passed_over.push_back(is_folder ? name + "/" : name);
    }
  }
  CARAVAN_CHECK(!error, MissingInputError, "--input {}: cannot read the folder: {}", folder,
                error.message());
  CARAVAN_CHECK(!files.empty(), MissingInputError,
                "--input {}: the folder has no .jsonl, .txt or .yaml file", folder);
  warn_of_passed_over(folder, std::move(passed_over));
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace caravan::batch
