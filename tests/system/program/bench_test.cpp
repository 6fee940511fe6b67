// `caravan bench` on one and several ranks.

#include "program_rig.h"

namespace caravan::test {
namespace {

using json = nlohmann::json;

class BenchTest : public testing::Test {
 protected:
  void SetUp() override {
    const ProcessResult result =
        caravan({"convert", std::string(CARAVAN_TEST_DATA) + "/checkpoints/tiny-llama31", model(),
                 "--dtype", "bf16"});
    ASSERT_EQ(result.code, 0) << result.err;
  }
  std::string model() const { return folder_.file("model.h5"); }
  TemporaryFolder folder_;
};

void expect_figures(const json& report, std::size_t ranks) {
  EXPECT_EQ(report["launch"]["ranks"].size(), ranks);
  EXPECT_GT(report["peaks"]["read_bytes_per_second"], 1e8);
  EXPECT_GT(report["peaks"]["fma_flop_per_second"], 1e8);
  EXPECT_GT(report["load"]["bytes"], 0);
  EXPECT_GT(report["load"]["seconds"], 0);
  std::vector<std::pair<std::string, int>> found;
  for (const json& speed : report["speeds"]) {
    found.emplace_back(speed["work"], speed["sequences"]);
    const double seconds = speed["seconds"];
    const double rate = speed["tokens_per_second"];
    EXPECT_GT(seconds, 0);
    const double tokens = speed["work"] == "decode" ? speed["sequences"].get<double>()
                                                    : speed["prompt_tokens"].get<double>();
    EXPECT_NEAR(rate * seconds, tokens, 1e-6 * tokens);
    EXPECT_GT(speed["flop_per_second"], 0);
    EXPECT_GT(speed["bytes_per_second"], 0);
    EXPECT_GT(speed["exchange_share"], 0);
    for (const char* share : {"exchange_share", "leader_share"}) {
      EXPECT_GE(speed[share], 0) << share;
      EXPECT_LE(speed[share], 1) << share;
    }
  }
  EXPECT_EQ(found, (std::vector<std::pair<std::string, int>>{
                       {"decode", 1}, {"decode", 8}, {"prefill", 1}}));
}

TEST_F(BenchTest, ShowsSpeedsAsJsonOnAnyRanks) {
  const Arguments bench = {"bench",           "--model", model(),     "--quick", "--json",
                           "--max-sequences", "20",      "--threads", "1"};
  const ProcessResult alone = caravan(bench);
  ASSERT_EQ(alone.code, 0) << alone.err;
  expect_figures(json::parse(alone.out), 1);
  const ProcessResult three = caravan_on(3, bench);
  ASSERT_EQ(three.code, 0) << three.err;
  expect_figures(json::parse(three.out), 3);
}

TEST_F(BenchTest, ShowsATable) {
  const ProcessResult result = caravan(
      {"bench", "--model", model(), "--quick", "--max-sequences", "1", "--compute", "bf16"});
  ASSERT_EQ(result.code, 0) << result.err;
  for (const char* part :
       {"\npeaks     reading ", "\nload ", "\ndecode       1 ", "\nprefill ", "bf16 computing"}) {
    EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
  }
}

TEST_F(BenchTest, RefusesWhatARunRefuses) {
  EXPECT_EQ(caravan({"bench"}).code, 64);
  EXPECT_EQ(caravan({"bench", "--model", model(), "prompts.jsonl"}).code, 64);
  EXPECT_EQ(caravan({"bench", "--model", folder_.file("none.h5")}).code, 66);
  const ProcessResult small =
      caravan({"bench", "--model", model(), "--quick", "--kv-memory", "64K"});
  EXPECT_EQ(small.code, 78) << small.err;
  EXPECT_NE(small.err.find("bench needs 512 at least: give it --kv-memory "), std::string::npos)
      << small.err;
}

}  // namespace
}  // namespace caravan::test
