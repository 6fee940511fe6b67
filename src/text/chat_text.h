#pragma once
// White space of chat contents, as templates see it.

#include <string_view>

namespace caravan::text {

enum class Ends { kBoth, kFirst, kLast };

/// `text` without white space at these ends: what a template's `trim` and Python's strip remove.
std::string_view trim(std::string_view text, Ends ends = Ends::kBoth);

}  // namespace caravan::text
