#pragma once
// One request as the rest of the program sees it: what to run, how to sample, how to answer; or why
// it cannot be run.
//
// Leaves out: the text forms that requests come in (request_parser.h, prompt_files.h) and token ids
// of texts (prompt_builder.h).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "caravan/engine/request.h"
#include "caravan/text/chat_format.h"

namespace caravan::batch {

enum class Endpoint { kChat, kCompletion };

/// Why a record gets an error line instead of an answer (fields of the line's "error").
struct RecordFault {
  int status = 400;     // 400, 404, 413 or 500
  std::string code;     // "invalid_json", "missing_field", ...
  std::string message;  // one sentence, or several faults joined by "; "
  std::string param;    // the field at fault: "messages.0.content"; may be empty
  bool operator==(const RecordFault&) const = default;
};

/// Adds the message of a further fault of the same record.
void append_fault(RecordFault& first, const RecordFault& next);

/// A prompt of the completions endpoint: text, or token ids that are taken as they are.
using CompletionPrompt = std::variant<std::string, std::vector<std::int32_t>>;

/// What the answer shows beside text, usage and finish reason.
struct OutputOptions {
  bool return_token_ids = false;
  bool echo = false;                            // completions: prompt in front of the answer
  bool logprobs = false;                        // of chosen (and with echo, prompt) tokens
  std::int64_t top_logprobs = 0;                // alternatives shown for each
  std::optional<std::int64_t> prompt_logprobs;  // alternatives in vLLM's `prompt_logprobs` list
};

/// An image that a prompt shows.
struct RecordImage {
  std::string url;    // data: URI or path, as the request has it
  std::string param;  // its field: "messages.0.content.1.image_url"
};

struct Record {
  std::string custom_id;
  Endpoint endpoint = Endpoint::kChat;
  std::vector<text::ChatMessage> messages;  // kChat
  text::ChatOptions chat_options;           // kChat
  std::vector<RecordImage> images;          // of all messages or of the one prompt, in order
  std::size_t image_source = 0;             // of ImageCatalog, where they come from
  std::vector<CompletionPrompt> prompts;    // kCompletion, at least one; with images exactly one
  /// kCompletion: an image stands before this byte or token id of the prompt, for each in order.
  std::vector<std::size_t> image_offsets;
  bool add_special_tokens = true;  // kCompletion: texts start with BOS where the model has one
  /// Everything but max_tokens, which depends on the prompt's length where the record gives none.
  engine::SamplingParams sampling;
  std::optional<std::int64_t> max_tokens;  // empty: up to the end of the context
  OutputOptions output;
  std::uint64_t content_hash = 0;  // of the request's text; part of the answer's ids
};

/// Whether the model computes anything for it; else its answer is its prompt.
inline bool computes(const Record& record) {
  return record.max_tokens != 0 || record.sampling.prompt_logprobs;
}

using ParsedRecord = std::variant<Record, RecordFault>;

}  // namespace caravan::batch
