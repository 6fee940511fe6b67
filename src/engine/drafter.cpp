#include "caravan/engine/drafter.h"

#include <algorithm>

#include "caravan/core/checked_cast.h"

namespace caravan::engine {
namespace {

constexpr std::int64_t kMostDrafts = 64;
constexpr std::int64_t kLongestPause = 64;
constexpr std::int64_t kMissesBeforePause = 2;

/// Of the `size` tokens before `end`. Two n-grams with one digest cost a poor guess at most.
std::uint64_t digest(const TokenHistory& history, std::int64_t end, std::int64_t size) {
  auto value = static_cast<std::uint64_t>(size);
  for (std::int64_t i = end - size; i < end; ++i) {
    value = (value + static_cast<std::uint32_t>(history[i]) + 1) * 0x9e3779b97f4a7c15ULL;
    value ^= value >> 32;
  }
  return value;
}

}  // namespace

void Drafter::index_up_to(const TokenHistory& history, std::int64_t end) {
  for (; indexed_ < end; ++indexed_) {
    for (const std::int64_t size : kSizes) {
      if (size > indexed_) continue;
      continuations_[digest(history, indexed_, size)] = checked_cast<std::int32_t>(indexed_);
    }
  }
}

/// Where the longest known n-gram at the end of the history stood last and went on; -1: nowhere.
std::int64_t Drafter::find_continuation(const TokenHistory& history) const {
  for (const std::int64_t size : kSizes) {
    if (size > history.size()) continue;
    const auto found = continuations_.find(digest(history, history.size(), size));
    if (found != continuations_.end()) return found->second;
  }
  return -1;
}

void Drafter::propose(const TokenHistory& history, std::int64_t most, std::int64_t num_tokens,
                      std::vector<std::int32_t>& drafts) {
  drafts.clear();
  if (pause_ > 0) {
    --pause_;
    return;
  }
  // The n-gram at the very end has no continuation yet.
  index_up_to(history, history.size());
  const std::int64_t begin = find_continuation(history);
  if (begin < 0) return;
  const std::int64_t count = std::min(most, length_);
  for (std::int64_t i = 0; i < count; ++i) {
    // What repeats with a period shorter than the guess goes on in the guess itself.
    const std::int64_t source = begin + i;
    const std::int32_t token = source < history.size()
                                   ? history[source]
                                   : drafts[static_cast<std::size_t>(source - history.size())];
    if (token >= num_tokens) return;
    drafts.push_back(token);
  }
}

void Drafter::settle(std::int64_t tried, std::int64_t accepted) {
  if (tried == 0) return;
  length_ = accepted == tried ? std::max(length_, std::min(2 * tried, kMostDrafts))
                              : std::max<std::int64_t>(1, accepted);
  if (accepted > 0) {
    misses_ = 0;
    next_pause_ = 4;
  } else if (++misses_ == kMissesBeforePause) {
    // One more miss after the pause is enough for the next one.
    misses_ = kMissesBeforePause - 1;
    pause_ = next_pause_;
    next_pause_ = std::min(2 * next_pause_, kLongestPause);
  }
}

}  // namespace caravan::engine
