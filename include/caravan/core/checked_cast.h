#pragma once
// Integer conversion that throws instead of changing the value.

#include <utility>

#include "caravan/core/error.h"

namespace caravan {

/// @throws InternalError if `value` has no equal in `To`.
template <typename To, typename From>
To checked_cast(From value) {
  CARAVAN_ASSERT(std::in_range<To>(value), "integer {} does not fit its target type", value);
  return static_cast<To>(value);
}

}  // namespace caravan
