#include "json_fields.h"

#include <cstdint>

#include "caravan/core/error.h"

namespace caravan::text {

std::int32_t id_of(const Json& value, std::int64_t limit, std::string_view where) {
  const auto id = find_int64(value);
  CARAVAN_CHECK(id && *id >= 0 && *id < limit, InputError,
                "{} must be an id from 0 to {}, found {}", where, limit - 1, short_json(value));
  return static_cast<std::int32_t>(*id);
}

std::string type_field(const Json& part, std::string_view where) {
  return JsonReader(part, where).need_text("type");
}

const Json& array_of(const Json& value, std::string_view where) {
  CARAVAN_CHECK(value.is_array(), InputError, "{} must be an array, found {}", where,
                json_kind(value));
  return value;
}

}  // namespace caravan::text
