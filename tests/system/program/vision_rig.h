#pragma once
// The built program, a converted model with vision, and the requests of the reference
// (tests/data/vision) with their pictures.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <string>

#include "support/base64.h"
#include "system/program/program_rig.h"

namespace caravan::test {

constexpr std::int64_t kTile = 56;
constexpr double kLeastGap = 1e-3;  // of the two best logits: below, either may win

/// Bytes of a uint8 tensor.
inline std::string byte_tensor(const std::string& path, const std::string& name) {
  const std::string file = read_whole(path);
  std::uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof(header));
  const nlohmann::json about = nlohmann::json::parse(file.substr(8, header)).at(name);
  const std::uint64_t begin = about.at("data_offsets").at(0);
  const std::uint64_t end = about.at("data_offsets").at(1);
  return file.substr(8 + header + begin, end - begin);
}

/// 24-bit BMP of the canvas that was cut into `tiles`: it is cut into the same tiles again.
inline std::string bmp_of_tiles(const std::string& tiles, std::int64_t down, std::int64_t across) {
  const std::int64_t width = across * kTile;
  const std::int64_t height = down * kTile;
  std::string file = "BM";
  const auto add = [&file](std::int64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) file += static_cast<char>(value >> (8 * i));
  };
  for (const std::int64_t value : {54 + 3 * width * height, std::int64_t{0}, std::int64_t{54},
                                   std::int64_t{40}, width, height}) {
    add(value, 4);
  }
  add(1, 2);
  add(24, 2);
  for (int i = 0; i < 6; ++i) add(0, 4);
  for (std::int64_t y = height - 1; y >= 0; --y) {  // rows of 168 bytes and more: no padding
    for (std::int64_t x = 0; x < width; ++x) {
      const std::int64_t tile = y / kTile * across + x / kTile;
      for (std::int64_t channel = 2; channel >= 0; --channel) {
        const std::int64_t plane = tile * 3 + channel;
        file += tiles[static_cast<std::size_t>((plane * kTile + y % kTile) * kTile + x % kTile)];
      }
    }
  }
  return file;
}

inline nlohmann::json image_part(const std::string& url) {
  return {{"type", "image_url"}, {"image_url", {{"url", url}}}};
}

class VisionTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = new TemporaryFolder();
    const ProcessResult result =
        caravan({"convert", std::string(CARAVAN_TEST_DATA) + "/checkpoints/tiny-vision", model()});
    ASSERT_EQ(result.code, 0) << result.err;
  }
  static void TearDownTestSuite() {
    delete shared_;
    shared_ = nullptr;
  }
  static std::string model() { return shared_->file("model.h5"); }

  void SetUp() override { load("tiny-a"); }

  /// Takes the requests of another model of the reference, with their pictures.
  void load(const std::string& name) {
    reference_ = std::string(CARAVAN_TEST_DATA) + "/vision/" + name;
    lines_.clear();
    expected_.clear();
    num_images_ = 0;
    for (const auto& entry : std::filesystem::directory_iterator(reference_)) {
      if (entry.path().extension() != ".json") continue;
      const nlohmann::json expected = nlohmann::json::parse(read_whole(entry.path()));
      add(expected);
    }
    ASSERT_GE(expected_.size(), 4U);
  }

  /// Writes the pictures of a request of the reference, and keeps its line.
  void add(const nlohmann::json& expected) {
    const std::string id = expected.at("id");
    std::size_t image = 0;
    const auto next_picture = [&] {
      const nlohmann::json& grid = expected.at("images").at(image).at("grid_hw");
      std::string name = id + "-" + std::to_string(image) + ".bmp";
      folder_.write(name, bmp_of_tiles(byte_tensor(reference_ + "/" + id + ".safetensors",
                                                   "image" + std::to_string(image) + ".tiles_u8"),
                                       grid.at(0), grid.at(1)));
      ++image;
      return name;
    };
    if (expected.contains("raw")) {
      // The reference has the start token behind the image where its ids say so.
      const bool image_first = expected.at("prompt_token_ids").at(0) == 768;
      std::string prompt;
      nlohmann::json images = nlohmann::json::array();
      for (const nlohmann::json& part : expected.at("raw")) {
        const bool is_image = part.at("type") == "image";
        prompt += is_image ? "<|image|>" : part.at("text").get<std::string>();
        if (is_image) images.push_back(next_picture());
        if (is_image && image_first) prompt += "<|begin_of_text|>";
      }
      lines_[id] = request(id, "/v1/completions",
                           {{"prompt", prompt}, {"multi_modal_data", {{"image", images}}}}, 32);
    } else {
      nlohmann::json messages = expected.at("messages");
      for (nlohmann::json& message : messages) {
        for (nlohmann::json& part : message.at("content")) {
          if (part.at("type") == "image") part = image_part(next_picture());
        }
      }
      lines_[id] = line(id, messages);
    }
    num_images_ += image;
    expected_[id] = expected;
  }
  static std::string request(const std::string& id, const std::string& url, nlohmann::json body,
                             int max_tokens) {
    body.update({{"temperature", 0},
                 {"max_tokens", max_tokens},
                 {"ignore_eos", true},
                 {"return_token_ids", true}});
    return nlohmann::json{{"custom_id", id}, {"url", url}, {"body", body}}.dump() + "\n";
  }
  static std::string line(const std::string& id, const nlohmann::json& messages,
                          int max_tokens = 32) {
    return request(id, "/v1/chat/completions", {{"messages", messages}}, max_tokens);
  }
  /// A record that shows one image.
  static std::string one_image(const std::string& id, const std::string& url) {
    return line(id, {{{"role", "user"}, {"content", {image_part(url)}}}}, 4);
  }
  std::string all_lines() const {
    std::string text;
    for (const auto& [id, line] : lines_) text += line;
    return text;
  }
  Arguments run(const std::string& output, const Arguments& more = {}) const {
    Arguments arguments = {
        "run",      "--model",           model(), "--input", folder_.file("p.jsonl"),
        "--output", folder_.file(output)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  /// Output lines by custom_id.
  std::map<std::string, nlohmann::json> answers(const std::string& output) const {
    std::map<std::string, nlohmann::json> found;
    for (nlohmann::json& line : read_lines(folder_.file(output)))
      found[line.at("custom_id")] = line;
    return found;
  }
  void expect_reference(const nlohmann::json& answer) const {
    const nlohmann::json& expected = expected_.at(answer.at("custom_id"));
    SCOPED_TRACE(expected.at("id").get<std::string>());
    const nlohmann::json& body = answer.at("response").at("body");
    const nlohmann::json& shown = expected.contains("raw") ? body.at("choices").at(0) : body;
    EXPECT_EQ(shown.at("prompt_token_ids"), expected.at("prompt_token_ids"));
    EXPECT_EQ(body.at("usage").at("prompt_tokens"), expected.at("prompt_token_ids").size());
    const nlohmann::json& ids = body.at("choices").at(0).at("token_ids");
    ASSERT_EQ(ids.size(), 32U);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const nlohmann::json& best = expected.at("top2").at(i);
      if (best.at(2).get<double>() - best.at(3).get<double>() < kLeastGap) break;
      ASSERT_EQ(ids.at(i), expected.at("greedy_token_ids").at(i)) << "token " << i;
    }
  }

  TemporaryFolder folder_;
  std::string reference_;
  std::map<std::string, std::string> lines_;  // by id
  std::map<std::string, nlohmann::json> expected_;
  std::size_t num_images_ = 0;

 private:
  static inline TemporaryFolder* shared_ = nullptr;
};

}  // namespace caravan::test
