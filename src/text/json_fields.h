#pragma once
// Typed access to JSON fields with messages that name the place.

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace caravan::text {

using Json = nlohmann::json;

/// @throws InputError with the parser's message; `source` names the file.
Json parse_json(const std::string& text, std::string_view source);

/// The field, or null when it is absent or JSON null. @throws InputError if `object` is no object.
const Json* find_field(const Json& object, const char* key, std::string_view where);
/// @throws InputError when the field is absent.
const Json& need_field(const Json& object, const char* key, std::string_view where);

std::string string_of(const Json& value, std::string_view where);
/// An integer from 0 to limit - 1.
std::int32_t id_of(const Json& value, std::int64_t limit, std::string_view where);

/// A field that may be absent or null. @throws InputError for another type.
bool bool_field(const Json& object, const char* key, bool when_absent, std::string_view where);
std::optional<std::string> string_field(const Json& object, const char* key,
                                        std::string_view where);
/// The "type" of a part of a tokenizer pipeline.
std::string type_field(const Json& part, std::string_view where);

}  // namespace caravan::text
