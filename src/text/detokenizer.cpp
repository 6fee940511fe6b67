#include "caravan/text/detokenizer.h"

#include <algorithm>

#include "caravan/text/utf8.h"

namespace caravan::text {

DecodedText text_behind(std::span<const std::int32_t> ids, const Tokenizer& tokenizer) {
  const bool has_text = std::any_of(ids.begin(), ids.end(),
                                    [&](std::int32_t id) { return !tokenizer.is_special(id); });
  return has_text ? DecodedText::kContinues : DecodedText::kBegins;
}

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool show_special, DecodedText start)
    : tokenizer_(&tokenizer),
      show_special_(show_special),
      drop_space_(start == DecodedText::kBegins &&
                  tokenizer.spec().space_prefix != SpacePrefix::kNone) {}

// What the token adds to the text.
std::string_view Detokenizer::bytes_of(std::int32_t id) const {
  std::string_view bytes = tokenizer_->token_bytes(id, show_special_);
  if (drop_space_ && bytes.starts_with(' ')) bytes.remove_prefix(1);
  return bytes;
}

std::string Detokenizer::push(std::int32_t id) {
  pending_.append(bytes_of(id));
  if (!tokenizer_->token_bytes(id, show_special_).empty()) drop_space_ = false;
  const std::size_t complete = complete_utf8_prefix(pending_);
  std::string text = replace_invalid_utf8(std::string_view(pending_).substr(0, complete));
  pending_.erase(0, complete);
  return text;
}

std::int64_t Detokenizer::characters_before(std::int32_t id) const {
  const std::string_view bytes = bytes_of(id);
  if (pending_.empty() || bytes.empty()) return 0;
  // The first byte belongs to the last character, be it complete or not.
  return count_characters(replace_invalid_utf8(pending_ + bytes.front())) - 1;
}

std::string Detokenizer::finish() {
  std::string text = replace_invalid_utf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace caravan::text
