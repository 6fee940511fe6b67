#pragma once
// White space of chat contents, as templates see it.

#include <string_view>

namespace caravan::text {

/// `text` without white space at both ends: what a template's `trim` and Python's strip remove.
std::string_view trim(std::string_view text);

}  // namespace caravan::text
