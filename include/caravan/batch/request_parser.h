#pragma once
// OpenAI batch lines, plain texts and prompt files to records: every field checked for type and
// range, what cannot be honoured refused by name.
//
// Leaves out: reading files (prompt_files.h), token counts (prompt_builder.h), duplicates
// (workload.h).

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "caravan/batch/record.h"

namespace caravan::batch {

enum class UnknownFields { kWarn, kRefuse };

/// What a record gets where it says nothing: options before the checkpoint's defaults before
/// OpenAI's. `app` fills it.
struct RequestDefaults {
  double temperature = 1.0;
  double top_p = 1.0;
  std::int64_t top_k = 0;
  double min_p = 0.0;
  double repetition_penalty = 1.0;
  std::uint64_t seed = 0;  // mixed with the record's custom_id
  std::optional<std::int64_t> max_tokens;
  std::vector<std::string> stop_strings;
  std::vector<std::int32_t> stop_ids;  // the model's end-of-text ids
  std::string date = "26 Jul 2024";
};

/// Images of a record, so that none can take all of the memory in which images are prepared.
inline constexpr std::int64_t kDefaultMaxImages = 64;

struct ParserOptions {
  RequestDefaults defaults;
  std::string model_name;           // for messages
  bool require_model_name = false;  // a request's "model" must be model_name
  UnknownFields unknown_fields = UnknownFields::kWarn;
  std::int64_t vocab_size = 0;  // ids in requests are below it
  bool reads_images = false;    // else requests with images are refused by the model's name
  std::int64_t max_images = kDefaultMaxImages;  // of a record
  std::string text_part_separator = "\n";  // between text parts of a message that follow each other
};

/// A prompt without an envelope, as text files and `--prompt` give it.
struct PlainPrompt {
  std::string custom_id;
  Endpoint endpoint = Endpoint::kChat;
  std::string system;  // kChat; empty: none
  std::string text;
  std::vector<std::string> images = {};  // kChat: shown before the text
};

/// Longest accepted request in bytes.
inline constexpr std::int64_t kMaxRecordBytes = 200 * 1000 * 1000;
/// OpenAI's default for the completions endpoint.
inline constexpr std::int64_t kDefaultCompletionTokens = 16;

class RequestParser {
 public:
  /// @param warn_unknown  told each unknown field name of each record (callers report a name once),
  /// those inside messages with * for positions. Inside `tools` nothing is unknown: models see it
  /// all.
  explicit RequestParser(ParserOptions options,
                         std::function<void(const std::string& name)> warn_unknown = {});

  /// One line of a batch file. On a fault `custom_id` receives the line's id if it has a usable
  /// one.
  ParsedRecord parse_line(std::string_view line, std::string& custom_id) const;

  /// A text prompt with the defaults.
  ParsedRecord parse_plain(const PlainPrompt& prompt) const;

  const ParserOptions& options() const { return options_; }

 private:
  ParserOptions options_;
  std::function<void(const std::string&)> warn_unknown_;
};

/// Default random seed of a record: depends on the job's seed and the record's id alone, so that an
/// answer stays the same when other records come, go or move.
std::uint64_t record_seed(std::uint64_t job_seed, std::string_view custom_id);

/// FNV-1a, for names and ids (no protection against intent).
std::uint64_t text_hash(std::string_view text);

}  // namespace caravan::batch
