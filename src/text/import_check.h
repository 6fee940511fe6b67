#pragma once
// The last step of every importer: a spec that has faults is a fault of the file.

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "caravan/core/error.h"
#include "caravan/text/tokenizer_spec.h"

namespace caravan::text {

/// @throws InputError listing the faults of `spec`, which was read from `source`.
inline TokenizerSpec check_imported(TokenizerSpec spec, std::string_view source) {
  const std::vector<std::string> problems = spec.problems();
  CARAVAN_CHECK(problems.empty(), InputError, "{} does not describe a usable tokenizer:\n  {}",
                source, fmt::join(problems, "\n  "));
  return spec;
}

}  // namespace caravan::text
