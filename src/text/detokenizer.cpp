#include "caravan/text/detokenizer.h"

#include "caravan/text/utf8.h"

namespace caravan::text {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool show_special, DecodedText start)
    : tokenizer_(&tokenizer),
      show_special_(show_special),
      drop_space_(start == DecodedText::kBegins &&
                  tokenizer.spec().space_prefix != SpacePrefix::kNone) {}

std::string Detokenizer::push(std::int32_t id) {
  std::string_view bytes = tokenizer_->token_bytes(id, show_special_);
  if (drop_space_ && !bytes.empty()) {
    if (bytes.front() == ' ') bytes.remove_prefix(1);
    drop_space_ = false;
  }
  pending_.append(bytes);
  const std::size_t complete = complete_utf8_prefix(pending_);
  std::string text = replace_invalid_utf8(std::string_view(pending_).substr(0, complete));
  pending_.erase(0, complete);
  return text;
}

std::string Detokenizer::finish() {
  std::string text = replace_invalid_utf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace caravan::text
