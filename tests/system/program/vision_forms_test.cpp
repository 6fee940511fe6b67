// Models with vision in every form, through `convert` and `run`, and the options of images.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>

#include "system/program/vision_rig.h"

namespace caravan::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kCheckpoints = std::string(CARAVAN_TEST_DATA) + "/checkpoints/";
const std::string kPicture = "02-image-first-0.bmp";

class VisionForms : public VisionTest {
 protected:
  /// Converts a checkpoint and answers the loaded requests on two ranks.
  std::map<std::string, json> answers_of(const std::string& checkpoint) const {
    const std::string converted = folder_.file("form.h5");
    const ProcessResult result =
        caravan({"convert", checkpoint, converted, "--overwrite", "--chat-format", "llama3-plain"});
    EXPECT_EQ(result.code, 0) << result.err;
    folder_.write("p.jsonl", all_lines());
    const ProcessResult run =
        caravan_on(2, {"run", "--model", converted, "--input", folder_.file("p.jsonl"), "--output",
                       folder_.file("form.jsonl"), "--overwrite", "--model-name", "m"});
    EXPECT_EQ(run.code, 0) << run.err;
    return answers("form.jsonl");
  }
  static std::map<std::string, json> choices(const std::map<std::string, json>& answers) {
    std::map<std::string, json> found;
    for (const auto& [id, answer] : answers)
      found[id] = answer.at("response").at("body").at("choices");
    return found;
  }
};

TEST_F(VisionForms, OfMetaAndTorchtuneAnswerAsThatOfHuggingFace) {
  const auto expected = choices(answers_of(kCheckpoints + "tiny-vision"));
  ASSERT_EQ(expected.size(), lines_.size());
  EXPECT_EQ(choices(answers_of(kCheckpoints + "tiny-vision-meta")), expected);
  EXPECT_EQ(choices(answers_of(kCheckpoints + "tiny-vision-tune")), expected);
}

// With uneven heads and newer names of tensors; with all layers, in bf16 and in two files.
TEST_F(VisionForms, OfOtherModelsAnswerAsTheReference) {
  for (const auto& [reference, checkpoint] :
       {std::pair("tiny-b", "tiny-vision-b"), std::pair("tiny-m", "tiny-vision-m")}) {
    SCOPED_TRACE(reference);
    load(reference);
    const auto found = answers_of(kCheckpoints + checkpoint);
    EXPECT_EQ(found.size(), lines_.size());
    for (const auto& [id, answer] : found) expect_reference(answer);
  }
}

TEST_F(VisionTest, MediaRootIsWhereImagesAre) {
  fs::create_directories(folder_.file("pictures/deep"));
  fs::rename(folder_.file(kPicture), folder_.file("pictures/deep/a.bmp"));
  folder_.write("p.jsonl", one_image("r", "deep/a.bmp"));
  const ProcessResult without = caravan(run("out.jsonl"));
  EXPECT_EQ(without.code, 65);
  EXPECT_NE(without.err.find("No such file"), std::string::npos) << without.err;
  const ProcessResult result =
      caravan(run("out.jsonl", {"--media-root", folder_.file("pictures")}));
  EXPECT_EQ(result.code, 0) << result.err;
  // An absolute path is not wider than the folder.
  folder_.write("p.jsonl", one_image("r", folder_.file("03-image-after-text-0.bmp")));
  const ProcessResult outside =
      caravan(run("outside.jsonl", {"--media-root", folder_.file("pictures")}));
  EXPECT_EQ(outside.code, 65);
  EXPECT_NE(outside.err.find("not below the media root"), std::string::npos) << outside.err;
}

TEST_F(VisionTest, LimitsOfImagesAreThoseOfTheOptions) {
  const std::string bytes = read_whole(folder_.file(kPicture));
  const auto side = [&bytes](std::size_t at) {
    return static_cast<unsigned char>(bytes[at]) + 256 * static_cast<unsigned char>(bytes[at + 1]);
  };
  const int pixels = side(18) * side(22);
  folder_.write("p.jsonl", one_image("r", kPicture));
  const std::pair<Arguments, std::string> limits[] = {
      {{"--max-image-pixels", std::to_string(pixels - 1)},
       "the limit is " + std::to_string(pixels - 1) + " pixels"},
      {{"--max-image-bytes", std::to_string(bytes.size() - 1)},
       "the limit is " + std::to_string(bytes.size() - 1)},
      {{"--max-image-bytes", "1K"}, "the limit is 1024"}};
  for (const auto& [arguments, words] : limits) {
    const ProcessResult result = caravan(run("out.jsonl", arguments));
    EXPECT_EQ(result.code, 65) << arguments.at(0);
    EXPECT_NE(result.err.find(words), std::string::npos) << result.err;
  }
  const ProcessResult enough =
      caravan(run("out.jsonl", {"--max-image-pixels", std::to_string(pixels), "--max-image-bytes",
                                std::to_string(bytes.size())}));
  EXPECT_EQ(enough.code, 0) << enough.err;
  EXPECT_EQ(caravan(run("out2.jsonl", {"--max-image-bytes", "0"})).code, 64);
}

TEST_F(VisionTest, TransparentImagesLieOverWhiteWhereThatIsAskedFor) {
  folder_.write("invisible.png",
                read_whole(std::string(CARAVAN_TEST_DATA) + "/images/reference/rgba_allzero.png"));
  // White of the same size: 320 x 240.
  std::string white("BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x40\1\0\0\xf0\0\0\0\1\0\x18\0", 30);
  white.resize(54);
  folder_.write("white.bmp", white + std::string(3 * 320 * 240, '\xff'));
  const auto shown = [&](const std::string& picture, const std::string& alpha) {
    const json part = image_part(picture);
    folder_.write(
        "p.jsonl",
        request("r", "/v1/chat/completions",
                {{"messages", {{{"role", "user"}, {"content", {part}}}}}, {"logprobs", true}}, 4));
    const ProcessResult result = caravan(run("out.jsonl", {"--image-alpha", alpha, "--overwrite"}));
    EXPECT_EQ(result.code, 0) << result.err;
    const json manifest = json::parse(read_whole(folder_.file("out.manifest.json")));
    EXPECT_EQ(manifest.at("fingerprint").at("image-alpha"), alpha);
    return answers("out.jsonl").at("r").at("response").at("body").at("choices");
  };
  const json expected = shown("white.bmp", "drop");
  EXPECT_EQ(shown("invisible.png", "white"), expected);
  EXPECT_NE(shown("invisible.png", "drop"), expected);
}

TEST_F(VisionTest, PromptsShowImagesInTheOrderGiven) {
  const std::string other = "03-image-after-text-0.bmp";
  const auto expected = [&](const std::string& id, const std::string& a, const std::string& b) {
    return line(id,
                {{{"role", "user"},
                  {"content", {image_part(a), image_part(b), {{"type", "text"}, {"text", "Hi"}}}}}},
                8);
  };
  folder_.write("p.jsonl", expected("ab", kPicture, other) + expected("ba", other, kPicture));
  ASSERT_EQ(caravan(run("out.jsonl")).code, 0);
  const auto found = answers("out.jsonl");
  std::map<std::string, std::string> texts;
  for (const char* id : {"ab", "ba"}) {
    texts[id] =
        found.at(id).at("response").at("body").at("choices").at(0).at("message").at("content");
  }
  const auto prompted = [&](const std::string& first, const std::string& second) {
    const ProcessResult result =
        caravan({"run", "--model", model(), "--prompt", "Hi", "--image", folder_.file(first),
                 "--image", folder_.file(second), "--temperature", "0", "--max-tokens", "8"});
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out.substr(0, result.out.size() - 1);
  };
  // The prompt may stop at the model's own end, which the lines did not.
  EXPECT_EQ(texts["ab"].substr(0, prompted(kPicture, other).size()), prompted(kPicture, other));
  EXPECT_EQ(texts["ba"].substr(0, prompted(other, kPicture).size()), prompted(other, kPicture));
}

// The ids of the reference's raw prompts, and what their images may not be.
TEST_F(VisionTest, CompletionsShowImagesWhereThePromptMarksThem) {
  const json& expected = expected_.at("11-raw-image-bos");
  const std::string name = "11-raw-image-bos-0.bmp";
  const auto with_images = [](const json& prompt, const json& images) -> json {
    return {{"prompt", prompt}, {"multi_modal_data", {{"image", images}}}, {"echo", true}};
  };
  const std::string url = "/v1/completions";
  folder_.write(
      "p.jsonl",
      request("ids", url, with_images(expected.at("prompt_token_ids"), name), 8) +
          request("text", url, with_images("<|image|><|begin_of_text|>Hi <|image|>", {name, name}),
                  2) +
          request("few", url, with_images("<|image|>Hi <|image|>", name), 2) +
          request("none", url, with_images("Hi", {name}), 2) +
          request("two", url, with_images({"<|image|>", "<|image|>"}, {name}), 2) +
          request("plain", url, {{"prompt", "<|image|>"}}, 2) +
          request("bad", url, with_images("<|image|>", "absent.png"), 2));
  const ProcessResult result = caravan(run("out.jsonl", {"--on-invalid", "record"}));
  ASSERT_EQ(result.code, 0) << result.err;
  const auto found = answers("out.jsonl");
  const auto choice = [&](const char* id) {
    return found.at(id).at("response").at("body").at("choices").at(0);
  };
  EXPECT_EQ(choice("ids").at("prompt_token_ids"), expected.at("prompt_token_ids"));
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_EQ(choice("ids").at("token_ids").at(i), expected.at("greedy_token_ids").at(i)) << i;
  EXPECT_TRUE(choice("text").at("text").get<std::string>().starts_with(
      "<|image|><|begin_of_text|>Hi <|image|>"));
  const json ids = choice("text").at("prompt_token_ids");
  EXPECT_EQ(ids.front(), 768);
  EXPECT_EQ(ids.at(1), 512);
  EXPECT_EQ(ids.back(), 768);
  const json plain = choice("plain").at("prompt_token_ids");
  EXPECT_EQ(std::count(plain.begin(), plain.end(), json(768)), 0) << plain;
  const std::map<std::string, std::pair<std::string, std::string>> faults = {
      {"few", {"prompt", "the prompt has 2 places for images"}},
      {"none", {"prompt", "the prompt has 0 places for images"}},
      {"two", {"multi_modal_data", "needs exactly one prompt"}},
      {"bad", {"multi_modal_data.image", "No such file"}}};
  for (const auto& [id, fault] : faults) {
    const json& error = found.at(id).at("error");
    ASSERT_FALSE(error.is_null()) << id;
    EXPECT_EQ(error.at("param"), fault.first) << error;
    EXPECT_NE(error.at("message").get<std::string>().find(fault.second), std::string::npos)
        << error;
  }
}

TEST_F(VisionTest, TokenizeShowsWhereImagesStandAndWhatTheyTake) {
  const json& expected = expected_.at("02-image-first");
  const std::string text = expected.at("messages").at(0).at("content").at(1).at("text");
  const ProcessResult chat =
      caravan({"tokenize", "--model", model(), "--chat", "--image", folder_.file(kPicture), text});
  ASSERT_EQ(chat.code, 0) << chat.err;
  std::string ids;
  for (const json& id : expected.at("prompt_token_ids"))
    ids += (ids.empty() ? "[" : ", ") + id.dump();
  EXPECT_NE(chat.out.find(ids + "]\n"), std::string::npos) << chat.out;
  const json& grid = expected.at("images").at(0).at("grid_hw");
  EXPECT_NE(
      chat.out.find("in " + grid.at(0).dump() + " tiles down and " + grid.at(1).dump() + " across"),
      std::string::npos)
      << chat.out;
  EXPECT_NE(chat.out.find("768  \"<|image|>\"  special"), std::string::npos) << chat.out;
  const ProcessResult raw =
      caravan({"tokenize", "--model", model(), "--image", folder_.file(kPicture), "a<|image|>"});
  EXPECT_EQ(raw.code, 0) << raw.err;
  EXPECT_NE(raw.out.find(", 768]\n"), std::string::npos) << raw.out;
  const ProcessResult absent =
      caravan({"tokenize", "--model", model(), "--image", folder_.file("absent.png"), "a"});
  EXPECT_EQ(absent.code, 65);
}

TEST_F(VisionTest, StandardInputHasImagesInItsLinesOnly) {
  const std::string uri =
      "data:image/bmp;base64," + base64_encode(read_whole(folder_.file(kPicture)));
  const auto from_standard_input = [&](const std::string& url, const Arguments& more) {
    ProcessOptions options;
    options.standard_input = one_image("r", url);
    Arguments arguments = {
        "run",        "--model", model(), "--input", "-", "--output", folder_.file("out.jsonl"),
        "--overwrite"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return caravan(arguments, options);
  };
  const ProcessResult embedded = from_standard_input(uri, {});
  EXPECT_EQ(embedded.code, 0) << embedded.err;
  const ProcessResult file = from_standard_input(kPicture, {});
  EXPECT_EQ(file.code, 65);
  EXPECT_NE(file.err.find("there is no --media-root"), std::string::npos) << file.err;
  const ProcessResult rooted = from_standard_input(kPicture, {"--media-root", folder_.path()});
  EXPECT_EQ(rooted.code, 0) << rooted.err;
}

// What is prepared, decoded or encoded of earlier images is gone.
TEST_F(VisionTest, MemoryDoesNotGrowWithTheNumberOfImages) {
  const std::string whole = read_whole(folder_.file(kPicture));
  const auto peak = [&](int images) {
    std::string lines;
    for (int i = 0; i < images; ++i) {
      std::string bytes = whole;
      for (std::size_t k = 0; k < 4; ++k) bytes[60 + k] = static_cast<char>(i >> (8 * k));
      const std::string name = "i" + std::to_string(i) + ".bmp";
      folder_.write(name, bytes);
      lines += one_image("r" + std::to_string(i), name);
    }
    folder_.write("p.jsonl", lines);
    const std::string name = std::to_string(images) + ".jsonl";
    const ProcessResult result =
        caravan(run(name, {"--threads", "1", "--kv-memory", "1M", "--image-memory", "2M"}));
    EXPECT_EQ(result.code, 0) << result.err;
    const json manifest =
        json::parse(read_whole(folder_.file(std::to_string(images) + ".manifest.json")));
    EXPECT_EQ(manifest.at("counts").at("images").at("distinct"), images);
    return result.peak_bytes;
  };
  const std::int64_t few = peak(100);
  const std::int64_t many = peak(1000);
  EXPECT_LE(many - few, few / 20) << few << " and " << many << " bytes";
}

}  // namespace
}  // namespace caravan::test
