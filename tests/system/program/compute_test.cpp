// --compute bf16 and --kv-dtype bf16 through the program: other bits than fp32, and the same ones
// however a run is cut.

#include "program_rig.h"

namespace caravan::test {
namespace {

using json = nlohmann::json;

struct Way {
  int ranks;
  Arguments options;
};

class ComputeTest : public testing::Test {
 protected:
  /// Converts one of the tiny checkpoints.
  void convert(const std::string& checkpoint, const std::string& dtype) {
    const ProcessResult result =
        caravan({"convert", std::string(CARAVAN_TEST_DATA) + "/checkpoints/" + checkpoint, model(),
                 "--dtype", dtype, "--overwrite"});
    ASSERT_EQ(result.code, 0) << result.err;
  }
  std::string model() const { return folder_.file("model.h5"); }

  /// The output of the run, or of the launch.
  std::string answers(const Way& way) {
    Arguments arguments = {"run",
                           "--model",
                           model(),
                           "--input",
                           folder_.file("prompts.jsonl"),
                           "--output",
                           folder_.file("out.jsonl"),
                           "--overwrite"};
    arguments.insert(arguments.end(), way.options.begin(), way.options.end());
    last_ = way.ranks == 1 ? caravan(arguments) : caravan_on(way.ranks, arguments);
    EXPECT_EQ(last_.code, 0) << last_.err;
    return read_whole(folder_.file("out.jsonl"));
  }
  json manifest() const { return json::parse(read_whole(folder_.file("out.manifest.json"))); }

  TemporaryFolder folder_;
  ProcessResult last_;
};

const std::vector<Way> kWays = {
    {1, {"--threads", "1", "--isa", "avx2", "--max-step-tokens", "7", "--max-sequences", "3"}},
    {1, {"--threads", "2", "--max-sequences", "1"}},
    {2, {"--threads", "1"}},
    {3, {"--threads", "1", "--isa", "avx2"}},
    {3, {"--threads", "1", "--max-step-tokens", "9", "--max-sequences", "5"}},
};

std::string mixed_requests() {
  std::string requests;
  for (int i = 0; i < 12; ++i) {
    json more = {{"max_tokens", 12}, {"temperature", i % 3 == 0 ? 0 : 1}, {"logprobs", true}};
    if (i % 4 == 1) more["n"] = 2;
    requests += chat_request("r-" + std::to_string(i),
                             std::string(1 + 9 * i, static_cast<char>('a' + i)), more);
  }
  return requests;
}

TEST_F(ComputeTest, ABf16CacheGivesTheSameBytesHoweverTheRunIsCut) {
  convert("tiny-llama31", "fp32");
  folder_.write("prompts.jsonl", mixed_requests());
  const std::string exact = answers({1, {}});
  EXPECT_EQ(manifest()["launch"]["kv_dtype"], "fp32");
  const std::string expected = answers({1, {"--kv-dtype", "bf16"}});
  EXPECT_EQ(manifest()["launch"]["kv_dtype"], "bf16");
  EXPECT_EQ(manifest()["fingerprint"]["kv-dtype"], "bf16");
  EXPECT_NE(expected, exact) << "--kv-dtype bf16 changes nothing";
  for (Way way : kWays) {
    way.options.insert(way.options.end(), {"--kv-dtype", "bf16"});
    EXPECT_EQ(answers(way), expected) << way.ranks << " ranks, " << way.options[1];
  }
}

TEST_F(ComputeTest, Bf16GivesTheSameBytesHoweverTheRunIsCut) {
  convert("tiny-llama31", "bf16");
  folder_.write("prompts.jsonl", mixed_requests());
  const std::string exact = answers({1, {}});
  EXPECT_EQ(manifest()["launch"]["compute"], "fp32");
  const std::string expected = answers({1, {"--compute", "bf16"}});
  EXPECT_EQ(manifest()["launch"]["compute"], "bf16");
  EXPECT_EQ(manifest()["fingerprint"]["compute"], "bf16");
  EXPECT_NE(expected, exact) << "--compute bf16 changes nothing";
  for (Way way : kWays) {
    way.options.insert(way.options.end(), {"--compute", "bf16"});
    EXPECT_EQ(answers(way), expected) << way.ranks << " ranks, " << way.options[1];
  }
}

TEST_F(ComputeTest, Bf16OfImagesGivesTheSameBytesOnAnyRanks) {
  convert("tiny-vision", "bf16");
  std::string requests;
  for (const char* text : {"a", "what is this?"}) {
    const json body = {{"messages",
                        {{{"role", "user"},
                          {"content",
                           {{{"type", "image_url"}, {"image_url", {{"url", "alpha.bmp"}}}},
                            {{"type", "text"}, {"text", text}}}}}}},
                       {"max_tokens", 8},
                       {"logprobs", true},
                       {"ignore_eos", true},
                       {"temperature", 0}};
    requests +=
        json{{"custom_id", text}, {"url", "/v1/chat/completions"}, {"body", body}}.dump() + "\n";
  }
  folder_.write("prompts.jsonl", requests);
  const Arguments media = {"--media-root", std::string(CARAVAN_TEST_DATA) + "/images"};
  const std::string exact = answers({1, media});
  const Arguments bf16 = {"--compute", "bf16", media[0], media[1]};
  const std::string expected = answers({1, bf16});
  EXPECT_NE(expected, exact);
  for (Way way : kWays) {
    way.options.insert(way.options.end(), bf16.begin(), bf16.end());
    EXPECT_EQ(answers(way), expected) << way.ranks << " ranks";
  }
  // Keys and values of images, too.
  const Arguments cache = {"--kv-dtype", "bf16", media[0], media[1]};
  const std::string cached = answers({1, cache});
  EXPECT_NE(cached, exact);
  for (Way way : kWays) {
    way.options.insert(way.options.end(), cache.begin(), cache.end());
    EXPECT_EQ(answers(way), cached) << way.ranks << " ranks";
  }
}

TEST_F(ComputeTest, QuantizedWeightsGiveTheSameBytesHoweverTheRunIsCut) {
  std::string requests;
  for (int i = 0; i < 9; ++i) {
    const json body = {{"prompt", std::string(static_cast<std::size_t>(1 + 7 * i), 'a')},
                       {"max_tokens", 10},
                       {"temperature", i % 3 == 0 ? 0 : 1},
                       {"logprobs", 2}};
    requests +=
        json{{"custom_id", std::to_string(i)}, {"url", "/v1/completions"}, {"body", body}}.dump() +
        "\n";
  }
  folder_.write("prompts.jsonl", requests);
  std::string before;
  for (const char* dtype : {"fp32", "int8", "int4"}) {
    convert("tiny-k256-gguf/tiny-k256-gguf-Q6_K.gguf", dtype);
    const std::string expected = answers({1, {}});
    EXPECT_EQ(manifest()["model"]["dtype"], dtype);
    EXPECT_NE(expected, before) << dtype << " changes nothing";
    before = expected;
    for (const Way& way : kWays) {
      EXPECT_EQ(answers(way), expected) << dtype << ", " << way.ranks << " ranks";
    }
  }
}

TEST_F(ComputeTest, WeightsOfOtherTypesAreRefusedBeforeTheRun) {
  convert("tiny-llama31", "fp16");
  folder_.write("prompts.jsonl", chat_request("r", "x"));
  for (const char* command : {"run", "plan"}) {
    const ProcessResult result =
        caravan({command, "--model", model(), "--input", folder_.file("prompts.jsonl"), "--output",
                 folder_.file("out.jsonl"), "--compute", "bf16"});
    EXPECT_EQ(result.code, 78) << result.err;
    EXPECT_NE(result.err.find("stores fp16: convert the source again with --dtype bf16"),
              std::string::npos)
        << result.err;
  }
}

}  // namespace
}  // namespace caravan::test
