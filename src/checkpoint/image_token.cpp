#include "image_token.h"

#include <algorithm>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"

namespace caravan::checkpoint {
namespace {

constexpr const char* kImageToken = "<|image|>";

}  // namespace

void add_image_token(text::TokenizerSpec& tokenizer, std::int64_t vocab_size,
                     const std::string& where) {
  CARAVAN_CHECK(tokenizer.kind != text::TokenizerKind::kSentencePiece, InputError,
                "{}: the tokenizer is SentencePiece's, expected that of Llama 3.2 Vision", where);
  const auto id = checked_cast<std::int32_t>(vocab_size);
  for (const text::AddedToken& token : tokenizer.added_tokens) {
    CARAVAN_CHECK(token.content != kImageToken || token.id == id, InputError,
                  "{}: the tokenizer gives {} the id {}, but the model has {} (the first behind "
                  "its vocabulary): the tokenizer is of another model",
                  where, kImageToken, token.id, id);
    CARAVAN_CHECK(token.id != id || token.content == kImageToken, InputError,
                  "{}: the tokenizer has \"{}\" at id {}, where the model has {}: the tokenizer is "
                  "of another model",
                  where, token.content, id, kImageToken);
  }
  const bool there = std::any_of(tokenizer.added_tokens.begin(), tokenizer.added_tokens.end(),
                                 [&](const text::AddedToken& token) { return token.id == id; });
  if (there) return;
  const auto place = static_cast<std::size_t>(id);
  CARAVAN_CHECK(tokenizer.tokens.size() <= place || tokenizer.tokens[place].empty(), InputError,
                "{}: the tokenizer has {} ids, but the vocabulary of the model ends at {}", where,
                tokenizer.tokens.size(), id);
  if (tokenizer.tokens.size() <= place) tokenizer.tokens.resize(place + 1);
  tokenizer.added_tokens.push_back({id, kImageToken, true});
}

}  // namespace caravan::checkpoint
