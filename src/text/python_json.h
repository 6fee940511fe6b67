#pragma once
// JSON as a chat template's `tojson` writes it: Python's json.dumps with ensure_ascii = False. Keys
// keep their order.

#include <string>
#include <string_view>

namespace caravan::text {

enum class JsonLayout { kOneLine, kIndented };  // indented by 4

/// The value that `json` holds, written again. @param where  names it in errors.
/// @throws InputError if `json` is not valid JSON or nested too deep.
std::string python_json(const std::string& json, JsonLayout layout, std::string_view where);

/// `text` as a JSON string. @throws InputError if it is not valid UTF-8.
std::string python_json_string(std::string_view text, std::string_view where);

}  // namespace caravan::text
