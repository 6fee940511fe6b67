#include "caravan/core/error.h"

namespace caravan {

void throw_internal_error(const char* file, int line, const char* condition,
                          const std::string& message) {
  throw InternalError(
      fmt::format("{} [{}:{}: `{}` does not hold]", message, file, line, condition));
}

}  // namespace caravan
