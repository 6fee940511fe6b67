#pragma once
// Records to token ids: chat layout, BOS, and the check that prompt and answer fit the context.
//
// Leaves out: whether the KV cache holds them (the engine refuses; workload.h).

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "caravan/batch/record.h"
#include "caravan/text/chat_format.h"
#include "caravan/text/tokenizer.h"

namespace caravan::batch {

/// Token ids of each prompt of a record, with the limit of new tokens resolved for each.
struct TokenizedPrompt {
  std::vector<std::int32_t> ids;
  std::int64_t max_tokens = 0;
};
using BuiltPrompts = std::variant<std::vector<TokenizedPrompt>, RecordFault>;

class PromptBuilder {
 public:
  /// References outlive this object. `chat_format` may be of kind kNone: chat records are refused.
  PromptBuilder(const text::Tokenizer& tokenizer, const text::ChatFormat& chat_format,
                std::int64_t context_tokens);

  /// Every fault is found here or by check(): prompts that the chat layout cannot express, that are
  /// empty or do not fit the context with their answer, and a min_tokens that cannot be kept.
  BuiltPrompts build(const Record& record) const;

  /// Finds the faults that build() finds, but tokenizes only where the number of bytes leaves
  /// doubt.
  std::optional<RecordFault> check(const Record& record) const;

  /// Positions that the longest sequence of the record may fill: an upper bound without tokenizing.
  std::int64_t worst_case_tokens(const Record& record) const;

  std::int64_t context_tokens() const { return context_tokens_; }
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  struct Sizes;
  Sizes sizes(const Record& record) const;
  std::optional<RecordFault> endpoint_fault(const Record& record) const;
  std::optional<RecordFault> early_fault(const Record& record, const Sizes& sizes) const;
  bool may_be_empty(const Record& record) const;
  std::vector<std::int32_t> completion_ids(const Record& record,
                                           const CompletionPrompt& prompt) const;
  std::vector<std::int32_t> text_ids(const Record& record, std::string_view text) const;

  const text::Tokenizer* tokenizer_;
  const text::ChatFormat* chat_format_;
  std::int64_t context_tokens_;
  bool keeps_all_text_;      // each byte of a text is in a token
  bool spaces_within_text_;  // a tokenizer may put spaces before parts of a text
};

}  // namespace caravan::batch
