// Options of the engine that change how much is computed, and nothing else.

#include "program_rig.h"

namespace caravan::test {
namespace {

using json = nlohmann::json;

class EngineOptionsTest : public ProgramTest {
 protected:
  std::string answers(int ranks, const Arguments& more) {
    Arguments all = {"--overwrite", "--max-step-tokens", "48", "--max-sequences", "8"};
    if (ranks > 1) all.insert(all.end(), {"--threads", "1"});
    all.insert(all.end(), more.begin(), more.end());
    const Arguments arguments = run_arguments("out.jsonl", all);
    last_ = ranks == 1 ? caravan(arguments) : caravan_on(ranks, arguments);
    EXPECT_EQ(last_.code, 0) << last_.err;
    return read_whole(folder_.file("out.jsonl"));
  }
  json engine_counts() const {
    return json::parse(read_whole(folder_.file("out.manifest.json")))["engine"];
  }
  bool logged(const std::string& text) const { return last_.err.find(text) != std::string::npos; }

  ProcessResult last_;
};

TEST_F(EngineOptionsTest, SharedPrefixesLeaveTheOutputAsItIs) {
  const std::string system(300, 's');
  std::string requests;
  for (int i = 0; i < 12; ++i) {
    json more = {{"max_tokens", 20}, {"temperature", i % 3 == 0 ? 0 : 1}, {"n", 1 + i % 2}};
    if (i % 4 == 3) more["logprobs"] = true;
    requests += chat_request("r-" + std::to_string(i), system + std::to_string(i % 7), more);
  }
  folder_.write("prompts.jsonl", requests);
  const std::string expected = answers(1, {"--prefix-sharing", "off"});
  EXPECT_EQ(engine_counts()["prompt_tokens_reused"], 0);
  EXPECT_FALSE(logged("found in the KV cache"));
  const std::int64_t computed = engine_counts()["prompt_tokens_computed"];
  for (const int ranks : {1, 2, 3}) {
    const std::string little = ranks == 1 ? "300K" : "150K";  // of each rank
    for (const Arguments& memory : {Arguments{}, Arguments{"--kv-memory", little}}) {
      EXPECT_EQ(answers(ranks, memory), expected) << ranks << " ranks, " << memory.size();
      const json counts = engine_counts();
      EXPECT_GT(counts["prompt_tokens_reused"], 11 * 150) << ranks << " ranks";
      EXPECT_LT(counts["prompt_tokens_computed"], computed / 2) << ranks << " ranks";
      EXPECT_TRUE(logged("found in the KV cache"));
      if (!memory.empty()) {
        EXPECT_GT(counts["put_backs"], 0) << ranks << " ranks";
      }
    }
  }
}

}  // namespace
}  // namespace caravan::test
