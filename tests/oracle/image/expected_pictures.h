#pragma once
// tests/data/images/expected.json, made by make_images.py there.

#include <nlohmann/json.hpp>
#include <string>

#include "support/temporary_folder.h"

namespace caravan::test {

inline std::string image_data(const std::string& name) {
  return read_whole(std::string(CARAVAN_TEST_DATA) + "/images/" + name);
}

inline nlohmann::json expected_pictures() {
  return nlohmann::json::parse(image_data("expected.json"));
}

}  // namespace caravan::test
