#include "space_rules.h"

#include "piece_names.h"

namespace caravan::text {
namespace {

/// Without spaces at the start; of each run of spaces one is left.
std::string without_extra_spaces(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (const char c : text) {
    if (c != ' ' || (!result.empty() && result.back() != ' ')) result.push_back(c);
  }
  return result;
}

}  // namespace

bool SpaceRules::puts_space(std::string_view text, Segment segment) const {
  if (text.empty()) return false;
  switch (prefix_) {
    case SpacePrefix::kNone: return false;
    case SpacePrefix::kEverySegment: return true;
    case SpacePrefix::kFirstSegmentUnlessSpaced:
      if (segment != Segment::kFirst) return false;
      [[fallthrough]];
    case SpacePrefix::kEverySegmentUnlessSpaced:
      return !text.starts_with(' ') && !text.starts_with(kSpaceSymbol);
  }
  return false;
}

std::string SpaceRules::apply(std::string_view text, Segment segment) const {
  std::string reduced;
  if (remove_extra_) {
    reduced = without_extra_spaces(text);
    text = reduced;
  }
  std::string result;
  result.reserve(text.size() + 1);
  if (puts_space(text, segment)) result.push_back(' ');
  append_with_plain_spaces(result, text);
  if (remove_extra_) {  // as the library does: at the end U+2581 counts as well
    while (result.ends_with(' ')) result.pop_back();
  }
  return result;
}

}  // namespace caravan::text
