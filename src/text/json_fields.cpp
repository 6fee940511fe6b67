#include "json_fields.h"

#include <cstdint>

#include "caravan/core/error.h"
#include "caravan/core/exception_text.h"

namespace caravan::text {

Json parse_json(const std::string& text, std::string_view source) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    throw InputError(fmt::format("{} is not valid JSON: {}", source, without_type(error.what())));
  }
}

const Json* find_field(const Json& object, const char* key, std::string_view where) {
  CARAVAN_CHECK(object.is_object(), InputError, "{}: expected an object, found {}", where,
                object.type_name());
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

const Json& need_field(const Json& object, const char* key, std::string_view where) {
  const Json* field = find_field(object, key, where);
  CARAVAN_CHECK(field != nullptr, InputError, "{}: \"{}\" is missing", where, key);
  return *field;
}

std::string string_of(const Json& value, std::string_view where) {
  CARAVAN_CHECK(value.is_string(), InputError, "{}: expected a string, found {}", where,
                value.type_name());
  return value.get<std::string>();
}

std::int32_t id_of(const Json& value, std::int64_t limit, std::string_view where) {
  CARAVAN_CHECK(value.is_number_integer(), InputError, "{}: expected an integer id, found {}",
                where, value.type_name());
  const bool in_range = value.is_number_unsigned()
                            ? value.get<std::uint64_t>() < static_cast<std::uint64_t>(limit)
                            : value.get<std::int64_t>() >= 0 && value.get<std::int64_t>() < limit;
  CARAVAN_CHECK(in_range, InputError, "{}: id {} is outside 0 to {}", where, value.dump(),
                limit - 1);
  return value.get<std::int32_t>();
}

bool bool_field(const Json& object, const char* key, bool when_absent, std::string_view where) {
  const Json* field = find_field(object, key, where);
  if (field == nullptr) return when_absent;
  CARAVAN_CHECK(field->is_boolean(), InputError, "{}: \"{}\" must be true or false, found {}",
                where, key, field->type_name());
  return field->get<bool>();
}

std::optional<std::string> string_field(const Json& object, const char* key,
                                        std::string_view where) {
  const Json* field = find_field(object, key, where);
  if (field == nullptr) return std::nullopt;
  CARAVAN_CHECK(field->is_string(), InputError, "{}: \"{}\" must be a string, found {}", where, key,
                field->type_name());
  return field->get<std::string>();
}

std::string type_field(const Json& part, std::string_view where) {
  return string_of(need_field(part, "type", where), fmt::format("{}.type", where));
}

}  // namespace caravan::text
