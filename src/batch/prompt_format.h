#pragma once
// Which kinds of prompt files there are, and which files of a folder are such.

#include <optional>
#include <string>
#include <vector>

#include "caravan/batch/prompt_files.h"

namespace caravan::batch {

enum class PromptFormat { kJsonl, kTextLines, kWholeText, kYaml };

/// By the end of the name, in any case.
std::optional<PromptFormat> format_of(const std::string& path, TextFiles text_files);

/// As a user says; empty for kAuto.
std::optional<PromptFormat> format_of(InputFormat format, TextFiles text_files);

/// By the first line that is not blank: batch requests if it opens an object with a field or
/// without any, YAML if it has a key of our prompts (comments are passed over) or begins a
/// document, else text.
PromptFormat sniff_format(io::InputFile& file, TextFiles text_files);

/// "batch requests (jsonl)" ... for messages.
std::string_view format_name(PromptFormat format);

/// Paths of the prompt files of a folder, sorted. Hidden files are passed over, everything else is
/// named in one warning.
/// @throws MissingInputError if the folder cannot be read or has none.
std::vector<std::string> prompt_files_of(const std::string& folder, TextFiles text_files);

/// What each file and standard input may begin with.
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

}  // namespace caravan::batch
