#pragma once
// Guesses the next tokens of a text from what stood in it before: where its last few tokens
// occurred earlier, what followed them then. No second model.
//
// A guess costs rows of a step and is checked by the model, so it changes no answer; the drafter
// keeps account of how many came true and guesses less, or not at all for a while, where they do
// not. Leaves out: when there is room for guesses (scheduler.h).
//
// After Saxena, "Prompt Lookup Decoding" (2023), with an index instead of a search.

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace caravan::engine {

/// All tokens of a sequence that are known.
struct TokenHistory {
  std::span<const std::int32_t> prompt;
  std::span<const std::int32_t> generated;
  std::int64_t size() const { return std::ssize(prompt) + std::ssize(generated); }
  std::int32_t operator[](std::int64_t position) const {
    const auto index = static_cast<std::size_t>(position);
    return index < prompt.size() ? prompt[index] : generated[index - prompt.size()];
  }
};

class Drafter {
 public:
  /// Replaces `drafts` by guesses of the tokens after `history`, at most `most`; often none. The
  /// history grows from call to call. Cost: as much as it has grown since the last call.
  /// @param num_tokens  ids from here on are not generated and not guessed.
  void propose(const TokenHistory& history, std::int64_t most, std::int64_t num_tokens,
               std::vector<std::int32_t>& drafts);
  /// Says how many of the guesses that were tried came true.
  void settle(std::int64_t tried, std::int64_t accepted);

 private:
  static constexpr std::array<std::int64_t, 3> kSizes{4, 3, 2};  // of the n-grams, best first

  void index_up_to(const TokenHistory& history, std::int64_t end);
  std::int64_t find_continuation(const TokenHistory& history) const;

  // Position behind the last occurrence of each n-gram, by a digest of it.
  std::unordered_map<std::uint64_t, std::int32_t> continuations_;
  std::int64_t indexed_ = 0;  // n-grams that end before this position are in the index
  std::int64_t length_ = 2;   // guesses that are worth a try
  std::int64_t misses_ = 0;   // tries in a row of which nothing came true
  std::int64_t pause_ = 0;    // proposals to leave out
  std::int64_t next_pause_ = 4;
};

}  // namespace caravan::engine
