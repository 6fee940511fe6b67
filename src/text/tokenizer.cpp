#include "caravan/text/tokenizer.h"

#include <algorithm>
#include <map>

#include "added_token_matcher.h"
#include "bpe.h"
#include "caravan/core/error.h"
#include "caravan/text/utf8.h"
#include "piece_names.h"
#include "space_rules.h"
#include "split_pattern.h"
#include "vocabulary.h"

namespace caravan::text {
namespace {

/// Stands for "no bound": spaces that are dropped, or go along with a token, need none.
constexpr std::size_t kUnboundedTextBytes = std::size_t{1} << 40;

/// The spec itself, once it is known to be free of faults.
TokenizerSpec checked(TokenizerSpec spec) {
  const std::vector<std::string> problems = spec.problems();
  CARAVAN_CHECK(problems.empty(), ConfigError, "the tokenizer cannot be used:\n  {}",
                fmt::join(problems, "\n  "));
  return spec;
}

}  // namespace

struct Tokenizer::State {
  explicit State(TokenizerSpec checked_spec)
      : spec(std::move(checked_spec)),
        vocabulary(spec),
        bpe(spec, vocabulary),
        space_rules(spec),
        ordinary_added(spec.added_tokens, AddedTokenMatcher::Which::kOrdinary),
        all_added(spec.added_tokens, AddedTokenMatcher::Which::kOrdinaryAndSpecial),
        normalized_added(spec.added_tokens, AddedTokenMatcher::Which::kNormalized) {
    for (const std::string& pattern : spec.split_patterns) patterns.emplace_back(pattern);
    for (const AddedToken& added : spec.added_tokens) {
      if (added.special) {
        content_of_special.emplace(added.id, added.content);
        special_ids.emplace(added.content, added.id);
      } else if (vocabulary.bytes(added.id).empty()) {
        bytes_of_added.emplace(added.id, spec.kind == TokenizerKind::kSentencePiece
                                             ? with_plain_spaces(added.content)
                                             : added.content);
      }
    }
    max_token_bytes = max_text_of_a_token();
  }

  std::size_t max_text_of_a_token() const;
  std::vector<std::int32_t> encode(std::string_view text, TextPlace place,
                                   const AddedTokenMatcher& added) const;

  TokenizerSpec spec;
  Vocabulary vocabulary;
  Bpe bpe;
  SpaceRules space_rules;
  std::vector<SplitPattern> patterns;
  AddedTokenMatcher ordinary_added;
  AddedTokenMatcher all_added;
  AddedTokenMatcher normalized_added;
  std::map<std::int32_t, std::string> content_of_special;
  std::map<std::int32_t, std::string> bytes_of_added;  // of ordinary ones beside the vocabulary
  std::map<std::string, std::int32_t, std::less<>> special_ids;
  std::size_t max_token_bytes = 0;
};

std::size_t Tokenizer::State::max_text_of_a_token() const {
  if (spec.remove_extra_spaces) return kUnboundedTextBytes;
  std::size_t longest = vocabulary.max_bytes();
  if (spec.kind == TokenizerKind::kSentencePiece) {  // a space may be written as U+2581
    for (const std::string& token : spec.tokens) {
      const auto spaces = static_cast<std::size_t>(std::count(token.begin(), token.end(), ' '));
      longest = std::max(longest, token.size() + spaces * (kSpaceSymbol.size() - 1));
    }
  }
  for (const AddedToken& added : spec.added_tokens) {
    if (added.lstrip || added.rstrip) return kUnboundedTextBytes;
    longest = std::max(longest, added.content.size());
  }
  return longest;
}

namespace {

/// Calls `on_text` with what lies between the matches of `added`, and `on_token` with their ids.
template <typename OnText, typename OnToken>
void split_at_added(const AddedTokenMatcher& added, std::string_view text, const OnText& on_text,
                    const OnToken& on_token) {
  std::size_t taken = 0, search_from = 0;
  while (const auto match = added.find(text, search_from, taken)) {
    if (match->begin > taken) on_text(text.substr(taken, match->begin - taken));
    on_token(match->id);
    taken = match->end;
    search_from = match->search_from;
  }
  if (taken < text.size()) on_text(text.substr(taken));
}

}  // namespace

std::vector<std::int32_t> Tokenizer::State::encode(std::string_view text, TextPlace place,
                                                   const AddedTokenMatcher& added) const {
  const std::optional<std::size_t> fault = find_invalid_utf8(text);
  CARAVAN_CHECK(!fault, InputError, "text to be tokenized is not valid UTF-8 at byte {} of {}",
                fault.value_or(0), text.size());
  std::vector<std::int32_t> ids;
  std::vector<SplitMatcher> matchers(patterns.begin(), patterns.end());
  Bpe::Scratch scratch;
  const auto append = [&](std::int32_t id) { ids.push_back(id); };
  const auto encode_pieces = [&](std::string_view part) {
    split_text(matchers, 0, part, [&](std::string_view piece) { bpe.encode(piece, scratch, ids); });
  };
  auto segment =
      place == TextPlace::kStart ? SpaceRules::Segment::kFirst : SpaceRules::Segment::kLater;
  const auto encode_segment = [&](std::string_view part) {
    if (spec.kind != TokenizerKind::kSentencePiece) {
      encode_pieces(part);
    } else {
      split_at_added(normalized_added, space_rules.apply(part, segment), encode_pieces, append);
    }
    segment = SpaceRules::Segment::kLater;
  };
  split_at_added(added, text, encode_segment, [&](std::int32_t id) {
    append(id);
    segment = SpaceRules::Segment::kLater;
  });
  return ids;
}

Tokenizer::Tokenizer(TokenizerSpec spec)
    : state_(std::make_unique<State>(checked(std::move(spec)))) {}

Tokenizer::~Tokenizer() = default;

const TokenizerSpec& Tokenizer::spec() const { return state_->spec; }

std::int64_t Tokenizer::vocab_size() const {
  return static_cast<std::int64_t>(state_->spec.tokens.size());
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, TextPlace place) const {
  return state_->encode(text, place, state_->ordinary_added);
}

std::vector<std::int32_t> Tokenizer::encode_with_special(std::string_view text,
                                                         TextPlace place) const {
  return state_->encode(text, place, state_->all_added);
}

std::string_view Tokenizer::token_bytes(std::int32_t id, bool show_special) const {
  if (!state_->vocabulary.is_special(id)) {
    const std::string_view bytes = state_->vocabulary.bytes(id);
    if (!bytes.empty() || state_->bytes_of_added.empty()) return bytes;
    const auto added = state_->bytes_of_added.find(id);
    return added == state_->bytes_of_added.end() ? bytes : std::string_view(added->second);
  }
  return show_special ? std::string_view(state_->content_of_special.at(id)) : std::string_view();
}

bool Tokenizer::is_special(std::int32_t id) const { return state_->vocabulary.is_special(id); }

std::string Tokenizer::decode_bytes(std::span<const std::int32_t> ids, bool show_special) const {
  std::string bytes;
  for (const std::int32_t id : ids) bytes.append(token_bytes(id, show_special));
  return bytes;
}

std::optional<std::int32_t> Tokenizer::special_id(std::string_view content) const {
  const auto found = state_->special_ids.find(content);
  if (found == state_->special_ids.end()) return std::nullopt;
  return found->second;
}

std::size_t Tokenizer::max_token_bytes() const { return state_->max_token_bytes; }

}  // namespace caravan::text
