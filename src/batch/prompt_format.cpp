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
  if (extension == ".txt") {
    return text_files == TextFiles::kPromptPerLine ? PromptFormat::kTextLines
                                                   : PromptFormat::kWholeText;
  }
  if (extension == ".yaml" || extension == ".yml") return PromptFormat::kYaml;
  return std::nullopt;
}

PromptFormat sniff_format(io::InputFile& file, TextFiles text_files) {
  std::string head;
  for (std::int64_t offset = 0; offset < file.size(); offset += std::ssize(head)) {
    head.resize(static_cast<std::size_t>(std::min<std::int64_t>(file.size() - offset, 4096)));
    file.read(offset, std::as_writable_bytes(std::span(head)));
    std::string_view text = head;
    if (offset == 0 && text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    const auto first = text.find_first_not_of(" \t\r\n");
    if (first == std::string_view::npos) continue;
    if (text[first] == '{') return PromptFormat::kJsonl;
    break;
  }
  return text_files == TextFiles::kPromptPerLine ? PromptFormat::kTextLines
                                                 : PromptFormat::kWholeText;
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
