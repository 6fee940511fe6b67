#pragma once
// What holds for everything that a file lists with a name and a place in it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace caravan::checkpoint {

struct NamedPlace {
  std::string_view name;
  std::int64_t begin = 0;  // bytes of the file
  std::int64_t end = 0;
};

/// Each name is there once, and no two places overlap. `what` they are: "tensors".
/// @throws InputError naming two that are at odds.
void check_places(std::vector<NamedPlace> places, std::string_view what, const std::string& path);

}  // namespace caravan::checkpoint
