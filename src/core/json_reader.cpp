#include "caravan/core/json_reader.h"

#include <utility>

namespace caravan {

std::string_view json_kind(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return "null";
    case Json::value_t::object: return "an object";
    case Json::value_t::array: return "an array";
    case Json::value_t::string: return "a string";
    case Json::value_t::boolean: return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned: return "an integer";
    case Json::value_t::number_float: return "a number with a fraction";
    case Json::value_t::binary:
    case Json::value_t::discarded: return "something else";
  }
  return "something else";
}

std::optional<std::int64_t> find_int64(const Json& value) {
  // What is beyond int64 is held as unsigned.
  if (value.is_number_unsigned() && !std::in_range<std::int64_t>(value.get<std::uint64_t>()))
    return std::nullopt;
  if (!value.is_number_integer()) return std::nullopt;
  return value.get<std::int64_t>();
}

std::int64_t int64_of(const Json& value, std::string_view where) {
  const auto number = find_int64(value);
  CARAVAN_CHECK(number, InputError, "{} must be an integer, found {}", where, short_json(value));
  return *number;
}

const std::string& string_of(const Json& value, std::string_view where) {
  CARAVAN_CHECK(value.is_string(), InputError, "{} must be a string, found {}", where,
                json_kind(value));
  return value.get_ref<const std::string&>();
}

JsonReader::JsonReader(const Json& object, std::string_view where)
    : object_(&object), where_(where) {
  CARAVAN_CHECK(object.is_object(), InputError, "{} must be a JSON object, found {}", where_,
                json_kind(object));
}

const Json* JsonReader::find(const char* name) const {
  asked_.emplace(name);
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

void JsonReader::refuse(const char* name, std::string_view expected, const Json& found) const {
  throw InputError(
      fmt::format("{}: \"{}\" must be {}, found {}", where_, name, expected, short_json(found)));
}

std::optional<std::int64_t> JsonReader::integer(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const auto number = find_int64(*value);
  if (!number) refuse(name, "an integer", *value);
  return number;
}

std::optional<double> JsonReader::real(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) refuse(name, "a number", *value);
  return value->get<double>();
}

std::optional<bool> JsonReader::boolean(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse(name, "true or false", *value);
  return value->get<bool>();
}

std::optional<std::string> JsonReader::text(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(name, "a string", *value);
  return value->get<std::string>();
}

std::optional<JsonReader> JsonReader::object(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  return JsonReader(*value, fmt::format("{}, \"{}\"", where_, name));
}

std::optional<std::vector<std::int64_t>> JsonReader::integers(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) refuse(name, "a list of integers", *value);
  std::vector<std::int64_t> integers;
  for (const Json& entry : *value) {
    const auto number = find_int64(entry);
    if (!number) refuse(name, "a list of integers", *value);
    integers.push_back(*number);
  }
  return integers;
}

std::optional<std::vector<double>> JsonReader::reals(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) refuse(name, "a list of numbers", *value);
  std::vector<double> reals;
  for (const Json& entry : *value) {
    if (!entry.is_number()) refuse(name, "a list of numbers", *value);
    reals.push_back(entry.get<double>());
  }
  return reals;
}

std::vector<std::int32_t> JsonReader::ids(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return {};
  std::vector<std::int32_t> ids;
  const auto add = [&](const Json& id) {
    const auto number = find_int64(id);
    if (!number || *number < 0 || !std::in_range<std::int32_t>(*number))
      refuse(name, "a token id or a list of them", *value);
    ids.push_back(static_cast<std::int32_t>(*number));
  };
  if (value->is_array()) {
    for (const Json& id : *value) add(id);
  } else {
    add(*value);
  }
  return ids;
}

void JsonReader::expect_no_others() const {
  for (const auto& [name, value] : object_->items()) {
    CARAVAN_CHECK(asked_.contains(name), InputError, "{}: unknown field {}", where_,
                  short_json(name));
  }
}

}  // namespace caravan
