// Which image each token sees, against masks of the reference (tests/data/vision).

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "caravan/engine/image_visibility.h"
#include "support/temporary_folder.h"

namespace caravan::engine {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int32_t kImage = 768;
constexpr std::int32_t kText = 1;
const std::string kFolder = std::string(CARAVAN_TEST_DATA) + "/vision";

/// For each position whether it sees each image.
std::vector<std::vector<int>> visible_rows(const std::vector<std::int32_t>& prompt,
                                           std::int64_t positions) {
  const ImageVisibility visibility(prompt, kImage);
  std::vector<std::vector<int>> rows;
  for (std::int64_t position = 0; position < positions; ++position) {
    const Range images = visibility.span_at(position).images;
    std::vector<int> row;
    for (std::int64_t image = 0; image < visibility.num_images(); ++image)
      row.push_back(image >= images.begin && image < images.end ? 1 : 0);
    rows.push_back(row);
  }
  return rows;
}

TEST(ImageMasks, AreThoseOfTheReferenceForEveryPatternOfMarkers) {
  const json cases = json::parse(test::read_whole(kFolder + "/mask_cases.json"));
  for (const json& about : cases) {
    SCOPED_TRACE(about.at("markers").dump());
    std::vector<std::int32_t> prompt(about.at("length").get<std::size_t>(), kText);
    for (const std::size_t marker : about.at("markers").get<std::vector<std::size_t>>())
      prompt.at(marker) = kImage;
    EXPECT_EQ(json(visible_rows(prompt, std::ssize(prompt) + 3)),
              about.at("visible_rows_prompt_plus_3_generated"));
  }
  EXPECT_EQ(cases.size(), 24U);
}

TEST(ImageMasks, AreThoseOfEveryStoredRequest) {
  int compared = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kFolder)) {
    if (entry.path().extension() != ".json") continue;
    const json request = json::parse(test::read_whole(entry.path()));
    if (!request.is_object()) continue;
    SCOPED_TRACE(entry.path().string());
    const auto prompt = request.at("prompt_token_ids").get<std::vector<std::int32_t>>();
    const auto rows = visible_rows(prompt, std::ssize(prompt) + 3);
    const json& intervals = request.at("image_intervals");
    for (std::size_t position = 0; position < rows.size(); ++position) {
      std::vector<int> expected;
      for (const json& interval : intervals) {
        const auto begin = interval.at(0).get<std::int64_t>();
        const auto end = interval.at(1).get<std::int64_t>();
        const auto at = static_cast<std::int64_t>(position);
        expected.push_back(at >= begin && (end < 0 || at < end) ? 1 : 0);
      }
      ASSERT_EQ(rows[position], expected) << position;
    }
    ++compared;
  }
  EXPECT_GE(compared, 30);
}

}  // namespace
}  // namespace caravan::engine
