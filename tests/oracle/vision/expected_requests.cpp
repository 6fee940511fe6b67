#include "expected_requests.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace caravan::test {
namespace {

constexpr float kLeastGap = 1e-3F;

Expected read_request(const std::filesystem::path& path) {
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file);
  const std::string tensors = std::filesystem::path(path).replace_extension(".safetensors");
  Expected request;
  request.id = json.at("id");
  request.prompt = json.at("prompt_token_ids").get<std::vector<std::int32_t>>();
  request.greedy = json.at("greedy_token_ids").get<std::vector<std::int32_t>>();
  for (const auto& best : json.at("top2")) {
    request.gaps.push_back(best.at(2).get<float>() - best.at(3).get<float>());
  }
  request.tensors = read_float_tensors(tensors);
  for (std::size_t i = 0; i < json.at("images").size(); ++i) {
    const auto& grid = json.at("images").at(i).at("grid_hw");
    request.pictures.push_back(
        {{grid.at(0), grid.at(1)},
         read_byte_tensor(tensors, "image" + std::to_string(i) + ".tiles_u8")});
    const auto& interval = json.at("image_intervals").at(i);
    request.intervals.push_back({i, interval.at(0), interval.at(1)});
  }
  return request;
}

}  // namespace

std::size_t Expected::comparable_tokens() const {
  const auto first =
      std::find_if(gaps.begin(), gaps.end(), [](float gap) { return gap < kLeastGap; });
  return static_cast<std::size_t>(first - gaps.begin());
}

std::vector<Expected> read_requests(const std::string& model) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(CARAVAN_TEST_DATA) + "/vision/" + model)) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Expected> requests;
  for (const auto& path : paths) requests.push_back(read_request(path));
  return requests;
}

std::string checkpoint_folder(const std::string& model) {
  return std::string(CARAVAN_TEST_DATA) + "/checkpoints/tiny-vision" +
         (model == "tiny-a" ? "" : model.substr(4));
}

}  // namespace caravan::test
