#include "json_reader.h"

#include <utility>

#include "caravan/core/error.h"
#include "caravan/core/exception_text.h"

namespace caravan::checkpoint {

using Json = nlohmann::json;

JsonReader::JsonReader(const Json& object, std::string where)
    : object_(&object), where_(std::move(where)) {
  CARAVAN_CHECK(object.is_object(), InputError, "{} must be a JSON object, found {}", where_,
                object.type_name());
}

Json JsonReader::parse(const std::string& text, const std::string& where) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    throw InputError(fmt::format("{} is not valid JSON: {}", where, without_type(error.what())));
  }
}

const Json* JsonReader::find(const char* name) const {
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::int64_t> JsonReader::integer(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  CARAVAN_CHECK(
      value->is_number_integer() && (!value->is_number_unsigned() ||
                                     std::in_range<std::int64_t>(value->get<std::uint64_t>())),
      InputError, "{}: \"{}\" must be an integer", where_, name);
  return value->get<std::int64_t>();
}

std::optional<double> JsonReader::real(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  CARAVAN_CHECK(value->is_number(), InputError, "{}: \"{}\" must be a number", where_, name);
  return value->get<double>();
}

std::optional<bool> JsonReader::boolean(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  CARAVAN_CHECK(value->is_boolean(), InputError, "{}: \"{}\" must be true or false", where_, name);
  return value->get<bool>();
}

std::optional<std::string> JsonReader::text(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  CARAVAN_CHECK(value->is_string(), InputError, "{}: \"{}\" must be a text", where_, name);
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
  CARAVAN_CHECK(value->is_array(), InputError, "{}: \"{}\" must be a list of integers", where_,
                name);
  std::vector<std::int64_t> integers;
  for (const Json& entry : *value) {
    // A number beyond int64 is stored as unsigned.
    const bool fits =
        entry.is_number_integer() &&
        (!entry.is_number_unsigned() || std::in_range<std::int64_t>(entry.get<std::uint64_t>()));
    CARAVAN_CHECK(fits, InputError, "{}: \"{}\" must be a list of integers", where_, name);
    integers.push_back(entry.get<std::int64_t>());
  }
  return integers;
}

std::vector<std::int32_t> JsonReader::ids(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return {};
  std::vector<std::int32_t> ids;
  const auto add = [&](const Json& id) {
    CARAVAN_CHECK(id.is_number_unsigned() && std::in_range<std::int32_t>(id.get<std::uint64_t>()),
                  InputError, "{}: \"{}\" must be a token id or a list of them", where_, name);
    ids.push_back(static_cast<std::int32_t>(id.get<std::uint64_t>()));
  };
  if (value->is_array()) {
    for (const Json& id : *value) add(id);
  } else {
    add(*value);
  }
  return ids;
}

}  // namespace caravan::checkpoint
