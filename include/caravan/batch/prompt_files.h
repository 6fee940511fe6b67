#pragma once
// The files that prompts come in: which they are, where each record begins, and its text on demand.
// Records are streamed; only their places are kept.
//
// Leaves out: what a record says (request_parser.h) and which are good (workload.h).

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "caravan/batch/request_parser.h"
#include "caravan/io/input_file.h"

namespace caravan::batch {

enum class TextFiles { kPromptPerLine, kPromptPerFile };

/// What an input holds. kAuto: files as their names end; standard input by its first line.
enum class InputFormat { kAuto, kJsonl, kText, kYaml };

struct PromptFilesOptions {
  InputFormat format = InputFormat::kAuto;  // of standard input, and of names that do not tell
  TextFiles text_files = TextFiles::kPromptPerLine;
  Endpoint text_endpoint = Endpoint::kChat;  // of prompts that name none (.txt, .yaml)
  std::string system;                        // put in front of those prompts where they have none
  std::string spool_folder = ".";            // where standard input is kept during the run
  std::function<bool()> stop_requested;      // asked while reading; may be empty
};

/// Where a record is.
struct RecordPlace {
  std::int64_t offset = 0;  // bytes; for YAML the number of the record in its file
  std::int64_t bytes = 0;
  std::int32_t file = 0;
  std::int32_t line = 0;  // from 1
};

class PromptFiles {
 public:
  /// @param inputs  files (.jsonl, .txt, .yaml, .yml in any case), folders, or "-" for standard
  /// input. Of a folder the prompt files are taken, sorted by name, and what else is in it is
  /// warned about; hidden files are passed over, folders in it are not entered.
  /// @throws MissingInputError for a path that does not exist or cannot be read, or a folder
  /// without prompt files; UsageError for an unknown kind of file or one that is named twice.
  /// With several faults an Error with the first one's code and all texts. Error kTemporary when a
  /// stop is requested. A file that is not valid YAML is among unreadable().
  PromptFiles(const std::vector<std::string>& inputs, PromptFilesOptions options);
  ~PromptFiles();
  PromptFiles(PromptFiles&&) noexcept;
  PromptFiles& operator=(PromptFiles&&) noexcept;

  /// Streams all files once and calls `use` for every record in input order. A record longer than
  /// kMaxRecordBytes comes with `too_long` set and no text.
  /// @throws IoError; Error kTemporary when a stop is requested; what `use` throws.
  struct Seen {
    RecordPlace place;
    std::string_view text;  // valid during the call
    bool too_long = false;
  };
  void scan(const std::function<void(const Seen&)>& use);

  /// Text of a record that was seen before.
  /// @throws IoError if the file has shrunk since.
  std::string text(const RecordPlace& place);

  /// The record's content by the rules of its file.
  ParsedRecord parse(const RecordPlace& place, std::string_view text, const RequestParser& parser,
                     std::string& custom_id) const;

  /// Folder of the record's file, where relative paths of images begin; empty for standard input.
  std::string folder(const RecordPlace& place) const;

  /// "prompts.jsonl:7", for messages and for records without an id.
  std::string label(const RecordPlace& place) const;

  /// Why files whose records cannot be told from each other have none here ("a.yaml:3: not valid
  /// YAML: ..."), in order.
  const std::vector<std::string>& unreadable() const;

  /// Paths of the files themselves ("-" for standard input), in order.
  std::vector<std::string> paths() const;
  /// SHA-256 over the bytes of all files; known after scan().
  const std::string& content_hash() const;
  std::int64_t blank_lines() const;
  std::int64_t total_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Prompts of a YAML file in torchtune's form: `system:` and `user:` at the top or below `prompt:`,
/// each a text or a mapping with `text:`, of the user also with `image:` (an address or a list of
/// them); one mapping or a list of them. `custom_id` is left empty, `line` counts from 1.
struct YamlPrompt {
  std::int32_t line = 0;
  std::int32_t earlier_on_line = 0;  // prompts before it that begin on the same line
  std::string system;
  std::string user;
  std::vector<std::string> images;  // shown before the text
  std::string faults;               // why it cannot be run: "user: is missing; ..."; else empty
};
/// @throws InputError naming the line if the text is not valid YAML.
std::vector<YamlPrompt> parse_yaml_prompts(const std::string& text, const std::string& path);

}  // namespace caravan::batch
