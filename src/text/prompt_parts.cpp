#include "prompt_parts.h"

#include <algorithm>

#include "caravan/core/error.h"
#include "white_space.h"

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

// Some control tokens take the white space beside them along.
std::string_view PromptParts::text_beside_tokens(std::size_t index) const {
  const auto takes = [&](std::size_t neighbour, bool AddedToken::*option) {
    const auto& added = tokenizer_->spec().added_tokens;
    return neighbour < parts_.size() &&
           std::any_of(added.begin(), added.end(), [&](const AddedToken& token) {
             return token.*option && token.id == parts_[neighbour].id;
           });
  };
  std::string_view text = parts_[index].text;
  if (index > 0 && takes(index - 1, &AddedToken::rstrip))
    text.remove_prefix(leading_white_space(text));
  if (takes(index + 1, &AddedToken::lstrip)) text.remove_suffix(trailing_white_space(text));
  return text;
}

std::vector<std::int32_t> PromptParts::encode() const {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    if (part.id != kText) {
      ids.push_back(part.id);
      continue;
    }
    const auto encoded = tokenizer_->encode(
        text_beside_tokens(i), ids.empty() ? TextPlace::kStart : TextPlace::kBehindToken);
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
