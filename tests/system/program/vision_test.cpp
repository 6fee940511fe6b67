// Records with images through the program: what the reference answers (tests/data/vision), the same
// bytes however they are run, and images that cannot be used.

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

TEST_F(VisionTest, AnswersAsTheReferenceHoweverItIsRun) {
  folder_.write("p.jsonl", all_lines());
  const ProcessResult whole = caravan(run("whole.jsonl"));
  ASSERT_EQ(whole.code, 0) << whole.err;
  const auto expected = answers("whole.jsonl");
  EXPECT_EQ(expected.size(), lines_.size());
  for (const auto& [id, answer] : expected) expect_reference(answer);
  const json manifest = json::parse(read_whole(folder_.file("whole.manifest.json")));
  EXPECT_EQ(manifest.at("counts").at("images").at("in_answered_now"), num_images_);
  EXPECT_EQ(manifest.at("engine").at("images_encoded"),
            manifest.at("counts").at("images").at("distinct"));
  EXPECT_LT(manifest.at("counts").at("images").at("distinct"), num_images_);

  // Backwards, on several ranks, with room for the images of one record at a time.
  std::string backwards;
  for (const auto& [id, line] : lines_) backwards = line + backwards;
  folder_.write("p.jsonl", backwards);
  for (const int ranks : {2, 3, 4}) {
    const std::string name = std::to_string(ranks) + ".jsonl";
    const ProcessResult result = caravan_on(
        ranks,
        run(name, {"--image-memory", "48K", "--max-sequences", "3", "--max-step-tokens", "16"}));
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(answers(name), expected) << ranks;
  }
  for (const char* id : {"02-image-first", "06-three-images"}) {
    ASSERT_TRUE(lines_.contains(id)) << id;
    folder_.write("p.jsonl", lines_.at(id));
    const ProcessResult solo = caravan(run(std::string(id) + ".jsonl"));
    ASSERT_EQ(solo.code, 0) << solo.err;
    EXPECT_EQ(answers(std::string(id) + ".jsonl").at(id), expected.at(id));
  }
}

TEST_F(VisionTest, AKilledRunGoesOnWithTheSameBytes) {
  std::string lines;
  for (int i = 0; i < 200; ++i) {
    const std::string id = "r" + std::to_string(i);
    json content = {{{"type", "text"}, {"text", id}}};
    if (i % 3 > 0) content.push_back(image_part("02-image-first-0.bmp"));
    if (i % 3 > 1) content.push_back(image_part("03-image-after-text-0.bmp"));
    lines += line(id, {{{"role", "user"}, {"content", content}}}, 24);
  }
  folder_.write("p.jsonl", lines);
  ASSERT_EQ(caravan(run("whole.jsonl")).code, 0);
  const std::string journal = folder_.file("out.jsonl.part");
  {
    ProcessOptions options;
    options.environment = launch_environment();
    Process process(caravan_command(run("out.jsonl", {"--max-sequences", "2"})), options);
    const auto is_under_way = [&] {
      if (process.ended() || !fs::exists(journal)) return process.ended();
      const std::string text = read_whole(journal);
      return std::count(text.begin(), text.end(), '\n') > 20;
    };
    ASSERT_TRUE(wait_until(is_under_way, 120));
    ASSERT_FALSE(process.ended()) << "the run was over before it could be disturbed";
    process.signal(SIGKILL);
    process.wait();
  }
  // Other libraries may decode a JPEG to other pixels: half of the answers must not come from them.
  std::string other = read_whole(journal);
  const std::size_t decoders = other.find("\"image decoders\":\"libvips ");
  ASSERT_LT(decoders, other.find('\n'));
  other.replace(other.find("; probe ", decoders) + 8, 4, "zzzz");
  folder_.write("other.jsonl.part", other);
  const ProcessResult refused = caravan(run("other.jsonl"));
  EXPECT_EQ(refused.code, 78);
  EXPECT_NE(refused.err.find("image decoders: the journal has libvips"), std::string::npos)
      << refused.err;
  const ProcessResult rest = caravan_on(2, run("out.jsonl", {"--image-memory", "48K"}));
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_NE(rest.err.find("continuing"), std::string::npos) << rest.err;
  EXPECT_EQ(read_whole(folder_.file("out.jsonl")), read_whole(folder_.file("whole.jsonl")));
}

TEST_F(VisionTest, SameImageByAnyAddressSameAnswer) {
  const std::string name = "02-image-first-0.bmp";
  const std::string bytes = read_whole(folder_.file(name));
  folder_.write("copy.any", bytes);
  std::string lines;
  int number = 0;
  for (const std::string& url :
       {name, "./" + name, folder_.file(name), "file://" + folder_.file(name),
        std::string("copy.any"), "data:image/png;base64," + base64_encode(bytes)}) {
    lines += one_image("r" + std::to_string(number++), url);
  }
  folder_.write("p.jsonl", lines);
  const ProcessResult result = caravan(run("out.jsonl"));
  ASSERT_EQ(result.code, 0) << result.err;
  const auto lines_out = answers("out.jsonl");
  for (const auto& [id, answer] : lines_out) {
    EXPECT_EQ(answer.at("response").at("body").at("choices"),
              lines_out.at("r0").at("response").at("body").at("choices"));
  }
  const json manifest = json::parse(read_whole(folder_.file("out.manifest.json")));
  EXPECT_EQ(manifest.at("counts").at("images").at("distinct"), 1);
  EXPECT_EQ(manifest.at("engine").at("images_encoded"), 1);
}

TEST_F(VisionTest, ImagesThatCannotBeUsedAreFaultsOfTheirRecords) {
  const std::string good = "02-image-first-0.bmp";
  folder_.write("text.png", "no image");
  folder_.write("empty.png", "");
  // Its header is good: only decoding finds that pixels are missing.
  const std::string whole = read_whole(std::string(CARAVAN_TEST_DATA) + "/images/noise.png");
  folder_.write("cut.png", whole.substr(0, whole.size() / 2));
  fs::create_symlink("/etc/hostname", folder_.file("link.png"));
  const std::map<std::string, std::pair<std::string, std::string>> bad = {
      {"absent", {"absent.png", "No such file"}},
      {"text", {"text.png", "expected a JPEG, PNG"}},
      {"empty", {"empty.png", "empty"}},
      {"outside", {"../../etc/hostname", "not below the media root"}},
      {"link", {"link.png", "not below the media root"}},
      {"network", {"https://host/a.png", "a compute node has no network"}},
      {"base64", {"data:image/png;base64,%%%", "base64"}},
      {"folder", {".", "expected an image file"}}};
  std::string lines = one_image("good", good) + one_image("cut", "cut.png");
  for (const auto& [id, about] : bad) lines += one_image(id, about.first);
  folder_.write("p.jsonl", lines);

  const ProcessResult refused = caravan(run("out.jsonl"));
  EXPECT_EQ(refused.code, 65);
  const ProcessResult result = caravan(run("out.jsonl", {"--on-invalid", "record"}));
  ASSERT_EQ(result.code, 0) << result.err;
  const auto found = answers("out.jsonl");
  EXPECT_EQ(found.size(), bad.size() + 2);
  EXPECT_TRUE(found.at("good").at("error").is_null()) << found.at("good");
  for (const auto& [id, about] : bad) {
    const json& error = found.at(id).at("error");
    ASSERT_FALSE(error.is_null()) << id;
    EXPECT_EQ(error.at("code"), "invalid_image") << id;
    EXPECT_EQ(error.at("param"), "messages.0.content.0.image_url") << id;
    EXPECT_NE(error.at("message").get<std::string>().find(about.second), std::string::npos)
        << error;
    EXPECT_NE(refused.err.find(about.second), std::string::npos) << about.second;
  }
  EXPECT_EQ(found.at("cut").at("error").at("code"), "invalid_image");
}

TEST_F(VisionTest, ImagesThatComeBackAreEncodedOnce) {
  constexpr int kImages = 30;
  std::string picture = read_whole(folder_.file("02-image-first-0.bmp"));
  for (int i = 0; i < kImages; ++i) {
    picture[60] = static_cast<char>(i);
    folder_.write(std::to_string(i) + ".bmp", picture);
  }
  std::string lines;
  for (int i = 0; i < 3 * kImages; ++i) {
    lines += one_image("r" + std::to_string(i), std::to_string(i % kImages) + ".bmp");
  }
  folder_.write("p.jsonl", lines);
  const auto encoded = [&](const std::string& name, const Arguments& more) -> std::int64_t {
    Arguments all = {"--max-sequences", "2"};
    all.insert(all.end(), more.begin(), more.end());
    const ProcessResult result = caravan(run(name + ".jsonl", all));
    EXPECT_EQ(result.code, 0) << result.err;
    return json::parse(read_whole(folder_.file(name + ".manifest.json")))
        .at("engine")
        .at("images_encoded");
  };
  EXPECT_EQ(encoded("all", {}), kImages);
  // Room for 10 of 30, two of them in use: a third of the repeats is found. Unused for longest
  // first would find none.
  const std::int64_t some = encoded("some", {"--image-memory", "160K"});
  EXPECT_LE(some, 3 * kImages - 2 * 7);
  EXPECT_GT(some, kImages);
  EXPECT_EQ(read_whole(folder_.file("some.jsonl")), read_whole(folder_.file("all.jsonl")));
  const Arguments plan = {"plan", "--model", model(), "--input", folder_.file("p.jsonl")};
  EXPECT_NE(caravan(plan).out.find("every distinct image is encoded once"), std::string::npos);
  Arguments small = plan;
  small.insert(small.end(), {"--image-memory", "160K"});
  EXPECT_NE(caravan(small).out.find("some images will be encoded again"), std::string::npos);
}

TEST_F(VisionTest, TextPassesRecordsThatWaitForImages) {
  std::string picture = read_whole(folder_.file("02-image-first-0.bmp"));
  std::string lines;
  for (int i = 0; i < 20; ++i) {
    picture[60] = static_cast<char>(i);
    folder_.write(std::to_string(i) + ".bmp", picture);
    const json content = {image_part(std::to_string(i) + ".bmp"),
                          {{"type", "text"}, {"text", "?"}}};
    lines += line("i" + std::to_string(i), {{{"role", "user"}, {"content", content}}}, 30);
  }
  for (int i = 0; i < 80; ++i) {
    lines += line("t" + std::to_string(i),
                  {{{"role", "user"}, {"content", "Text " + std::to_string(i)}}}, 30);
  }
  folder_.write("p.jsonl", lines);
  const auto steps = [&](const std::string& name, const Arguments& more) -> std::int64_t {
    Arguments all = {"--max-sequences", "8", "--speculation", "off"};
    all.insert(all.end(), more.begin(), more.end());
    const ProcessResult result = caravan(run(name + ".jsonl", all));
    EXPECT_EQ(result.code, 0) << result.err;
    return json::parse(read_whole(folder_.file(name + ".manifest.json"))).at("engine").at("steps");
  };
  const std::int64_t ample = steps("ample", {});
  // Room for one image: its records come one after the other, and all text beside them.
  const std::int64_t tight = steps("tight", {"--image-memory", "16K"});
  EXPECT_GE(tight, 20 * 30);
  EXPECT_LE(tight, 20 * 30 + 100) << "text took steps of its own; " << ample << " without waiting";
  EXPECT_EQ(read_whole(folder_.file("tight.jsonl")), read_whole(folder_.file("ample.jsonl")));
}

TEST_F(VisionTest, ARecordHasAFixedNumberOfImagesAtMost) {
  const json part = image_part("02-image-first-0.bmp");
  const auto record = [&](const std::string& id, std::size_t images) {
    return line(id, {{{"role", "user"}, {"content", json(images, part)}}}, 2);
  };
  folder_.write("p.jsonl", record("most", 64) + record("more", 65));
  const ProcessResult result = caravan(run("out.jsonl", {"--on-invalid", "record"}));
  ASSERT_EQ(result.code, 0) << result.err;
  const auto found = answers("out.jsonl");
  EXPECT_TRUE(found.at("most").at("error").is_null()) << found.at("most");
  const json& error = found.at("more").at("error");
  ASSERT_FALSE(error.is_null());
  EXPECT_EQ(error.at("code"), "too_many_images");
  EXPECT_EQ(error.at("param"), "messages.0.content.64");
  // The limit decides which records have answers: another one is another job.
  const ProcessResult fewer = caravan(run("fewer.jsonl", {"--max-images", "3"}));
  EXPECT_EQ(fewer.code, 65);
  EXPECT_NE(fewer.err.find("p.jsonl:1 to 2 (2 records): messages.0.content.3 is image 4 of"),
            std::string::npos)
      << fewer.err;
  const json manifest = json::parse(read_whole(folder_.file("out.manifest.json")));
  EXPECT_EQ(manifest.at("fingerprint").at("max-images"), "64");
}

TEST_F(VisionTest, ImagesThatDoNotFitAreTheFaultOfTheirRecord) {
  const json one = image_part("06-three-images-0.bmp");
  const auto record = [&](const std::string& id, const json& content, int max_tokens) {
    return line(id, {{{"role", "user"}, {"content", content}}}, max_tokens);
  };
  const json three = {{{"type", "text"}, {"text", "x"}},
                      one,
                      image_part("06-three-images-1.bmp"),
                      image_part("02-image-first-0.bmp")};
  // The last one shows as many and computes nothing.
  folder_.write("p.jsonl", record("a", json::array({one}), 3) + record("b", three, 3) +
                               record("c", json::array({one}), 3) + record("d", three, 0));
  const Arguments small = {"--image-memory", "48K"};
  const ProcessResult refused = caravan(run("out.jsonl", small));
  EXPECT_EQ(refused.code, 78);
  EXPECT_NE(refused.err.find("1 record(s) have images that do not fit"), std::string::npos)
      << refused.err;
  EXPECT_NE(refused.err.find("p.jsonl:2: images that a prompt shows side by side need"),
            std::string::npos)
      << refused.err;
  const ProcessResult result =
      caravan(run("out.jsonl", {"--image-memory", "48K", "--on-invalid", "record"}));
  ASSERT_EQ(result.code, 0) << result.err;
  const auto found = answers("out.jsonl");
  for (const char* id : {"a", "c", "d"}) EXPECT_TRUE(found.at(id).at("error").is_null()) << id;
  const json& error = found.at("b").at("error");
  ASSERT_FALSE(error.is_null());
  EXPECT_EQ(error.at("code"), "image_memory_exceeded");
  EXPECT_EQ(error.at("param"), "messages.0.content.1.image_url");
  ASSERT_EQ(caravan(run("whole.jsonl")).code, 0);
  EXPECT_EQ(answers("whole.jsonl").at("a"), found.at("a"));
  EXPECT_TRUE(answers("whole.jsonl").at("b").at("error").is_null());
  // What computes nothing needs no memory.
  folder_.write("p.jsonl", record("d", three, 0));
  EXPECT_EQ(caravan(run("none.jsonl", {"--image-memory", "1K"})).code, 0);
  const ProcessResult prompt =
      caravan({"run", "--model", model(), "--prompt", "Hi", "--image",
               folder_.file("02-image-first-0.bmp"), "--image-memory", "1K"});
  EXPECT_EQ(prompt.code, 78);
  EXPECT_NE(prompt.err.find("--prompt: images that a prompt shows"), std::string::npos)
      << prompt.err;
}

TEST_F(VisionTest, PromptsAndYamlShowImagesBeforeTheText) {
  const std::string name = "02-image-first-0.bmp";
  const json messages = {
      {{"role", "user"}, {"content", {image_part(name), {{"type", "text"}, {"text", "Hi"}}}}}};
  folder_.write("p.jsonl", line("r", messages, 6));
  ASSERT_EQ(caravan(run("out.jsonl")).code, 0);
  const std::string expected = answers("out.jsonl")
                                   .at("r")
                                   .at("response")
                                   .at("body")
                                   .at("choices")
                                   .at(0)
                                   .at("message")
                                   .at("content");
  // Stops at the model's own end, which the line above did not.
  const auto agrees = [&expected](const std::string& text) { return expected.starts_with(text); };
  const ProcessResult prompt =
      caravan({"run", "--model", model(), "--prompt", "Hi", "--image", folder_.file(name),
               "--temperature", "0", "--max-tokens", "6"});
  ASSERT_EQ(prompt.code, 0) << prompt.err;
  EXPECT_TRUE(agrees(prompt.out.substr(0, prompt.out.size() - 1))) << prompt.out << expected;
  folder_.write("y.yaml", "user: {text: Hi, image: " + name + "}\n");
  const ProcessResult yaml =
      caravan({"run", "--model", model(), "--input", folder_.file("y.yaml"), "--output",
               folder_.file("y.jsonl"), "--temperature", "0", "--max-tokens", "6"});
  ASSERT_EQ(yaml.code, 0) << yaml.err;
  const json line = read_lines(folder_.file("y.jsonl")).at(0);
  EXPECT_TRUE(
      agrees(line.at("response").at("body").at("choices").at(0).at("message").at("content")))
      << line;
}

TEST_F(VisionTest, ModelsOfTextAloneRefuseImagesByName) {
  const std::string text_model = folder_.file("text.h5");
  ASSERT_EQ(caravan({"convert", std::string(CARAVAN_TEST_DATA) + "/checkpoints/tiny-llama31",
                     text_model, "--name", "Reader"})
                .code,
            0);
  folder_.write("p.jsonl", one_image("a", "02-image-first-0.bmp"));
  const ProcessResult result =
      caravan({"run", "--model", text_model, "--input", folder_.file("p.jsonl"), "--output",
               folder_.file("out.jsonl")});
  EXPECT_EQ(result.code, 65);
  EXPECT_NE(result.err.find("model Reader has no vision"), std::string::npos) << result.err;
}

TEST_F(VisionTest, PlanShowsWhatImagesTake) {
  folder_.write("p.jsonl", all_lines());
  const ProcessResult plan =
      caravan({"plan", "--model", model(), "--input", folder_.file("p.jsonl"), "--ranks", "2"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  for (const std::string& part :
       {std::to_string(num_images_) + " images in", std::string("keys and values on rank 0:"),
        std::string("image tokens in"), std::string("vision     encoder, projector")}) {
    EXPECT_NE(plan.out.find(part), std::string::npos) << part << "\n" << plan.out;
  }
  const ProcessResult tight = caravan(
      {"plan", "--model", model(), "--input", folder_.file("p.jsonl"), "--image-memory", "1K"});
  EXPECT_EQ(tight.code, 78);
  EXPECT_NE(tight.err.find("--image-memory"), std::string::npos) << tight.err;
}

TEST_F(VisionTest, AChangedImageIsAnotherInput) {
  folder_.write("p.jsonl", one_image("a", "02-image-first-0.bmp") + one_image("b", "x.bmp"));
  folder_.write("x.bmp", read_whole(folder_.file("03-image-after-text-0.bmp")));
  ASSERT_EQ(caravan(run("out.jsonl")).code, 0);
  const json first = json::parse(read_whole(folder_.file("out.manifest.json")));
  folder_.write("x.bmp", read_whole(folder_.file("02-image-first-0.bmp")));
  ASSERT_EQ(caravan(run("out.jsonl", {"--overwrite"})).code, 0);
  const json second = json::parse(read_whole(folder_.file("out.manifest.json")));
  EXPECT_EQ(first.at("fingerprint").at("input hash"), second.at("fingerprint").at("input hash"));
  EXPECT_NE(first.at("fingerprint").at("images hash"), second.at("fingerprint").at("images hash"));
}

}  // namespace
}  // namespace caravan::test
