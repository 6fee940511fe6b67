#pragma once
// Answers and faults as OpenAI batch output lines. The same record, model and answer give the same
// bytes: ids come from the content, `created` is always 0 (the manifest has the time).

#include <cstdint>
#include <string>
#include <vector>

#include "caravan/batch/prompt_builder.h"
#include "caravan/batch/record.h"
#include "caravan/engine/request.h"
#include "caravan/text/tokenizer.h"

namespace caravan::batch {

class ResponseWriter {
 public:
  /// @param model_name  shown as `model`. @param model_key  what ids depend on beside the record
  /// (the checkpoint's content hash). `tokenizer` outlives this object.
  ResponseWriter(const text::Tokenizer& tokenizer, std::string model_name, std::string model_key);

  /// One line without its line end. @pre one answer for each prompt, none with an error.
  std::string answer_line(const Record& record, const std::vector<TokenizedPrompt>& prompts,
                          const std::vector<engine::Answer>& answers) const;

  /// @param content_hash  tells records with one custom_id apart
  std::string error_line(const std::string& custom_id, std::uint64_t content_hash,
                         const RecordFault& fault) const;

 private:
  const text::Tokenizer* tokenizer_;
  std::string model_name_;
  std::string model_key_;
};

/// Whether a line written by this class is an error line.
bool is_error_line(std::string_view line);

}  // namespace caravan::batch
