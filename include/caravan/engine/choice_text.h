#pragma once
// The decoded text of one choice as it grows, and the conditions that end it.
//
// A stop string is looked for in decoded text, so that it is found however tokens cut it. Nothing
// is shown before a choice ends, so text that may yet become a stop string is simply still there.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "caravan/engine/request.h"
#include "caravan/text/detokenizer.h"
#include "caravan/text/tokenizer.h"

namespace caravan::engine {

/// Finds stop strings in text that arrives in pieces; each byte is compared a bounded number of
/// times.
class StopMatcher {
 public:
  /// @param stop_strings  none empty; outlives this object.
  StopMatcher(const std::vector<std::string>& stop_strings, bool keep_match);

  /// Takes a piece of text without looking for stop strings in it; none will be found that ends
  /// here.
  void append_unchecked(std::string_view piece) { text_ += piece; }

  /// Takes a piece of text. If a stop string ends in it, cuts the text before (or, when matches are
  /// kept, after) the one that begins first and returns its number (of two that begin together the
  /// first listed one).
  std::optional<std::size_t> append(std::string_view piece);

  const std::string& text() const { return text_; }

 private:
  const std::vector<std::string>* stop_strings_;
  bool keep_match_;
  std::string text_;
};

/// Why a choice ended.
struct Ending {
  FinishReason reason = FinishReason::kLength;
  std::variant<std::monostate, std::int32_t, std::string> stop;
};

class ChoiceText {
 public:
  /// `tokenizer` and `params` outlive this object. `start`: whether the prompt has text before this
  /// choice.
  ChoiceText(const text::Tokenizer& tokenizer, const SamplingParams& params,
             text::DecodedText start = text::DecodedText::kContinues);

  /// Takes the next generated token; returns the ending if the choice ends with it. Of several
  /// reasons the first of: stop id, stop string, max_tokens.
  /// @pre no ending was returned before.
  std::optional<Ending> push(std::int32_t id);

  /// The text so far, an unfinished character at its end shown as U+FFFD. Once, after the last
  /// push.
  std::string finish();

 private:
  const SamplingParams* params_;
  text::Detokenizer detokenizer_;
  StopMatcher matcher_;
  std::int64_t num_tokens_ = 0;
  bool cut_ = false;  // at a stop string: what the detokenizer still holds lies behind the cut
};

}  // namespace caravan::engine
