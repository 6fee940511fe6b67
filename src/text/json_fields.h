#pragma once
// What tokenizer files have in their JSON beside plain fields.

#include <string>
#include <string_view>

#include "caravan/core/json_reader.h"

namespace caravan::text {

/// An integer from 0 to limit - 1.
std::int32_t id_of(const Json& value, std::int64_t limit, std::string_view where);

/// The "type" of a part of a tokenizer pipeline.
std::string type_field(const Json& part, std::string_view where);

/// @throws InputError if `value` is none.
const Json& array_of(const Json& value, std::string_view where);

}  // namespace caravan::text
