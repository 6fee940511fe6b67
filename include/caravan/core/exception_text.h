#pragma once
// Texts of exceptions that libraries throw, for messages to users.

#include <string>
#include <string_view>

namespace caravan {

/// What a library's exception says, without the name of its type that some put in front in brackets
/// ("[json.exception.parse_error.101] parse error ...").
inline std::string without_type(std::string_view what) {
  const auto end = what.find("] ");
  if (what.starts_with('[') && end != std::string_view::npos) what.remove_prefix(end + 2);
  return std::string(what);
}

}  // namespace caravan
