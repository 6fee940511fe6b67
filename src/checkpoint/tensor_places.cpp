#include "tensor_places.h"

#include <algorithm>

#include "caravan/core/error.h"

namespace caravan::checkpoint {

void check_places(std::vector<NamedPlace> places, std::string_view what, const std::string& path) {
  const auto sort_by = [&](auto member) {
    std::sort(places.begin(), places.end(),
              [member](const NamedPlace& a, const NamedPlace& b) { return a.*member < b.*member; });
  };
  const auto find_pair = [&](auto at_odds) {
    const auto found = std::adjacent_find(places.begin(), places.end(), at_odds);
    return found == places.end() ? nullptr : &*found;
  };
  sort_by(&NamedPlace::name);
  const NamedPlace* first =
      find_pair([](const NamedPlace& a, const NamedPlace& b) { return a.name == b.name; });
  CARAVAN_CHECK(first == nullptr, InputError,
                "{} has \"{}\" twice among its {}: it is damaged, download it again", path,
                first->name, what);
  sort_by(&NamedPlace::begin);
  first = find_pair([](const NamedPlace& a, const NamedPlace& b) { return a.end > b.begin; });
  CARAVAN_CHECK(first == nullptr, InputError,
                "{} has the {} \"{}\" and \"{}\" overlapping: it is damaged, download it again",
                path, what, first[0].name, first[1].name);
}

}  // namespace caravan::checkpoint
