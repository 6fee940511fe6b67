#include "added_token_matcher.h"

#include <algorithm>

namespace caravan::text {
namespace {

constexpr std::int32_t kNone = -1;

bool belongs(const AddedToken& added, AddedTokenMatcher::Which which) {
  if (added.special) return which == AddedTokenMatcher::Which::kOrdinaryAndSpecial;
  return added.normalized == (which == AddedTokenMatcher::Which::kNormalized);
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(const std::vector<AddedToken>& added_tokens, Which which)
    : which_(which), node_ids_(1, kNone) {
  for (const AddedToken& added : added_tokens) {
    if (added.content.empty() || !belongs(added, which)) continue;
    starts_[static_cast<unsigned char>(added.content.front())] = true;
    std::int32_t node = 0;
    for (const char c : added.content) {
      std::int32_t child = edges_.get(node, static_cast<unsigned char>(c));
      if (child == PairMap::kNone) {
        child = static_cast<std::int32_t>(node_ids_.size());
        edges_.set(node, static_cast<unsigned char>(c), child);
        node_ids_.push_back(kNone);
      }
      node = child;
    }
    node_ids_[static_cast<std::size_t>(node)] = static_cast<std::int32_t>(tokens_.size());
    tokens_.push_back(added);
    if (added.single_word && !words_) words_.emplace();
  }
}

AddedTokenMatcher::Found AddedTokenMatcher::longest_at(std::string_view text,
                                                       std::size_t begin) const {
  Found longest;
  std::int32_t node = 0;
  for (std::size_t end = begin; end < text.size(); ++end) {
    node = edges_.get(node, static_cast<unsigned char>(text[end]));
    if (node == PairMap::kNone) break;
    const std::int32_t token = node_ids_[static_cast<std::size_t>(node)];
    if (token != kNone) longest = {end + 1, token};
  }
  return longest;
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::placed(std::string_view text,
                                                                  std::size_t begin,
                                                                  const Found& found,
                                                                  std::size_t taken) const {
  const AddedToken& token = tokens_[static_cast<std::size_t>(found.token)];
  const std::string_view before = text.substr(0, begin), behind = text.substr(found.end);
  if (token.single_word && (words_->end(before) || words_->start(behind))) return std::nullopt;
  // Behind the space prefix a space is U+2581, which is no white space.
  const auto stop = which_ == Which::kNormalized ? ' ' : '\0';
  Match match{begin, found.end, token.id, found.end};
  if (token.lstrip) {
    std::size_t length = trailing_white_space(before);
    const std::size_t last = before.substr(begin - length).rfind(stop);
    if (last != std::string_view::npos) length -= last + 1;
    match.begin = std::max(begin - length, taken);
  }
  if (token.rstrip) {
    const std::size_t length = leading_white_space(behind);
    match.end += std::min(length, behind.substr(0, length).find(stop));
  }
  return match;
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::find(std::string_view text,
                                                                std::size_t offset,
                                                                std::size_t taken) const {
  if (tokens_.empty()) return std::nullopt;
  for (std::size_t begin = offset; begin < text.size(); ++begin) {
    if (!starts_[static_cast<unsigned char>(text[begin])]) continue;
    const Found found = longest_at(text, begin);
    if (found.token == kNone) continue;
    if (const auto match = placed(text, begin, found, taken)) return match;
    begin = found.end - 1;  // what is no single word hides what lies inside it
  }
  return std::nullopt;
}

}  // namespace caravan::text
