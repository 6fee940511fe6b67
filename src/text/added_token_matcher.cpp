#include "added_token_matcher.h"

namespace caravan::text {
namespace {

constexpr std::int32_t kNone = -1;

bool belongs(const AddedToken& added, AddedTokenMatcher::Which which) {
  if (added.special) return which == AddedTokenMatcher::Which::kOrdinaryAndSpecial;
  return added.normalized == (which == AddedTokenMatcher::Which::kNormalized);
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(const std::vector<AddedToken>& added_tokens, Which which)
    : node_ids_(1, kNone) {
  for (const AddedToken& added : added_tokens) {
    if (added.content.empty() || !belongs(added, which)) continue;
    empty_ = false;
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
    node_ids_[static_cast<std::size_t>(node)] = added.id;
  }
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::find(std::string_view text,
                                                                std::size_t offset) const {
  if (empty_) return std::nullopt;
  for (std::size_t begin = offset; begin < text.size(); ++begin) {
    if (!starts_[static_cast<unsigned char>(text[begin])]) continue;
    std::optional<Match> longest;
    std::int32_t node = 0;
    for (std::size_t end = begin; end < text.size(); ++end) {
      node = edges_.get(node, static_cast<unsigned char>(text[end]));
      if (node == PairMap::kNone) break;
      const std::int32_t id = node_ids_[static_cast<std::size_t>(node)];
      if (id != kNone) longest = Match{begin, end + 1, id};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace caravan::text
