#include "caravan/engine/choice_text.h"

#include <algorithm>

#include "caravan/core/error.h"

namespace caravan::engine {
namespace {

bool contains(const std::vector<std::int32_t>& ids, std::int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

StopMatcher::StopMatcher(const std::vector<std::string>& stop_strings, bool keep_match)
    : stop_strings_(&stop_strings), keep_match_(keep_match) {
  for (const std::string& stop : stop_strings) {
    CARAVAN_ASSERT(!stop.empty(), "an empty stop string would match everywhere");
  }
}

std::optional<std::size_t> StopMatcher::append(std::string_view piece) {
  const std::size_t old_size = text_.size();
  text_ += piece;
  if (piece.empty()) return std::nullopt;
  std::size_t found = stop_strings_->size();
  std::size_t found_begin = std::string::npos;
  for (std::size_t i = 0; i < stop_strings_->size(); ++i) {
    const std::string& stop = (*stop_strings_)[i];
    // A match must end in the new piece: earlier ends were looked at before, or are not to count.
    const std::size_t first = old_size >= stop.size() ? old_size - stop.size() + 1 : 0;
    const std::size_t begin = text_.find(stop, first);
    if (begin == std::string::npos || begin >= found_begin) continue;
    found = i;
    found_begin = begin;
  }
  if (found_begin == std::string::npos) return std::nullopt;
  text_.resize(found_begin + (keep_match_ ? (*stop_strings_)[found].size() : 0));
  return found;
}

ChoiceText::ChoiceText(const text::Tokenizer& tokenizer, const SamplingParams& params,
                       text::DecodedText start)
    : params_(&params),
      detokenizer_(tokenizer, params.show_special, start),
      matcher_(params.stop_strings, params.include_stop_string) {}

std::optional<Ending> ChoiceText::push(std::int32_t id) {
  const bool may_stop = num_tokens_ >= params_->min_tokens;
  ++num_tokens_;
  if (may_stop && contains(params_->stop_ids, id)) {
    if (params_->include_stop_string) matcher_.append_unchecked(detokenizer_.push(id));
    Ending ending{FinishReason::kStop, {}};
    if (!contains(params_->eos_ids, id)) ending.stop = id;
    return ending;
  }
  const std::string piece = detokenizer_.push(id);
  if (!may_stop) {
    matcher_.append_unchecked(piece);
  } else if (const auto match = matcher_.append(piece)) {
    cut_ = true;
    return Ending{FinishReason::kStop, params_->stop_strings[*match]};
  }
  if (num_tokens_ >= params_->max_tokens) return Ending{FinishReason::kLength, {}};
  return std::nullopt;
}

std::string ChoiceText::finish() {
  return cut_ ? matcher_.text() : matcher_.text() + detokenizer_.finish();
}

}  // namespace caravan::engine
