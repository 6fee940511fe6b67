#pragma once
// A prompt before it is encoded: control tokens and the text between them.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "caravan/text/tokenizer.h"

namespace caravan::text {

class PromptParts {
 public:
  explicit PromptParts(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  const Tokenizer& tokenizer() const { return *tokenizer_; }

  void control(std::int32_t id) { parts_.push_back({id, {}}); }
  /// @throws InputError if the tokenizer has no such control token.
  void control(std::string_view content);
  /// Text without a control token between is one run and is encoded as a whole, as when rendered
  /// text is tokenized: header newlines may merge with what follows.
  void text(std::string_view text);

  std::vector<std::int32_t> encode() const;
  std::int64_t most_tokens() const;

 private:
  static constexpr std::int32_t kText = -1;
  struct Part {
    std::int32_t id = kText;
    std::string text;  // kText
  };

  std::string_view text_beside_tokens(std::size_t index) const;

  const Tokenizer* tokenizer_;
  std::vector<Part> parts_;
};

}  // namespace caravan::text
