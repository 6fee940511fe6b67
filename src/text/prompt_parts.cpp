#include "prompt_parts.h"

#include "caravan/core/error.h"

namespace caravan::text {

void PromptParts::control(std::string_view content) {
  const auto id = tokenizer_->special_id(content);
  CARAVAN_CHECK(id, InputError,
                "this tokenizer has no control token \"{}\", which the prompt needs", content);
  control(*id);
}

void PromptParts::text(std::string_view text) {
  if (text.empty()) return;
  if (parts_.empty() || parts_.back().id != kText) parts_.push_back({});
  parts_.back().text.append(text);
}

std::vector<std::int32_t> PromptParts::encode() const {
  std::vector<std::int32_t> ids;
  for (const Part& part : parts_) {
    if (part.id != kText) {
      ids.push_back(part.id);
      continue;
    }
    const auto encoded =
        tokenizer_->encode(part.text, ids.empty() ? TextPlace::kStart : TextPlace::kBehindToken);
    ids.insert(ids.end(), encoded.begin(), encoded.end());
  }
  return ids;
}

std::int64_t PromptParts::most_tokens() const {
  std::int64_t most = 0;
  for (const Part& part : parts_) {
    // A tokenizer may put a space in front of every segment, each of at least one byte.
    const bool may_grow = tokenizer_->spec().space_prefix != SpacePrefix::kNone;
    const auto bytes = static_cast<std::int64_t>(part.text.size());
    most += part.id != kText ? 1 : may_grow ? 2 * bytes : bytes;
  }
  return most;
}

}  // namespace caravan::text
