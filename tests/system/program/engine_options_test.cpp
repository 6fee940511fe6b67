// Options of the engine that change how much is computed, and nothing else.

#include "program_rig.h"

namespace caravan::test {
namespace {

using json = nlohmann::json;

class EngineOptionsTest : public ProgramTest {
 protected:
  std::string answers(int ranks, const Arguments& more) {
    Arguments all = {"--overwrite", "--max-step-tokens", "48"};
    if (std::find(more.begin(), more.end(), "--max-sequences") == more.end()) {
      all.insert(all.end(), {"--max-sequences", "12"});
    }
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
    for (const Arguments& memory : {Arguments{}, {"--kv-memory", little, "--max-sequences", "8"}}) {
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

TEST_F(EngineOptionsTest, GuessesLeaveTheOutputAsItIs) {
  std::string requests;
  for (int i = 0; i < 6; ++i) {
    const json more = {{"max_tokens", 50},
                       {"temperature", i % 2},
                       {"seed", i},
                       {"n", 1 + i % 2},
                       {"logit_bias", {{"65", 20}, {"66", 20}}},
                       {"logprobs", i % 3 == 0 ? json(1) : json()}};
    requests += completion_request("r-" + std::to_string(i), "again and again and again", more);
  }
  folder_.write("prompts.jsonl", requests);
  const std::string expected = answers(1, {"--speculation", "off"});
  EXPECT_EQ(engine_counts()["drafted_tokens"], 0);
  EXPECT_FALSE(logged("guessed ahead"));
  for (const int ranks : {1, 2, 3}) {
    for (const Arguments& more :
         {Arguments{"--max-sequences", "1"}, {"--max-sequences", "2", "--speculation", "3"}}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + more[1] + " sequences");
      EXPECT_EQ(answers(ranks, more), expected);
      const json counts = engine_counts();
      EXPECT_GT(counts["accepted_tokens"], 20);
      EXPECT_GE(counts["drafted_tokens"], counts["accepted_tokens"]);
      EXPECT_LE(counts["decode_tokens"], counts["generated_tokens"].get<int>() - 9)
          << "the first token of a choice is chosen by a row of its prompt";
      EXPECT_TRUE(logged("guessed ahead"));
    }
  }
}

}  // namespace
}  // namespace caravan::test
