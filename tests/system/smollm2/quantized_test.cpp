// The real model with its own int4 weights, and quantized to int8.

#include <gtest/gtest.h>

#include <iostream>

#include "smollm2_rig.h"

namespace caravan {
namespace {

class QuantizedSmolLm2 : public SmolLm2 {
 protected:
  static std::string converted(const std::string& dtype, const std::string& log_line) {
    const std::string target = path(dtype + ".h5");
    if (fs::exists(target)) return target;
    const auto result =
        test::run_process({CARAVAN_PROGRAM, "convert", source_, target, "--dtype", dtype});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.err.find(log_line), std::string::npos) << result.err;
    return target;
  }
};

// The GGUF file has Q4_1 matrices and a Q8_0 embedding: the converted file holds their codes, and
// the program computes with the values that the fp32 file holds.
TEST_F(QuantizedSmolLm2, OwnCodesGiveTheBytesOfTheirFp32Values) {
  const std::string int4 = converted("int4", "210 matrices: int4 taken over exactly from Q4_1");
  EXPECT_LT(fs::file_size(int4), fs::file_size(model()) / 5);
  const std::vector<Json> lines = requests();
  std::vector<Json> reversed(lines.rbegin(), lines.rend());
  const auto base = run("fp32", 1, lines, {"--threads", "2"});
  expect_same({"int4", 1, lines, {"--threads", "2"}}, base, int4);
  expect_same({"int4-two-ranks", 2, reversed, {"--threads", "1"}}, base, int4);
  expect_same({"int4-three-ranks-avx2",
               3,
               lines,
               {"--threads", "1", "--isa", "avx2", "--max-step-tokens", "100"}},
              base, int4);
  std::vector<Json> few(lines.begin(), lines.begin() + 4);
  for (const Json& line : few) {
    const std::string id = line["custom_id"];
    expect_same({"int4-alone-" + id, 1, {line}, {"--threads", "1"}}, {{id, base.at(id)}}, int4);
  }
  for (Json& line : few) line["body"]["max_tokens"] = 5;
  expect_same({"int4-generic", 2, few, {"--threads", "1", "--isa", "generic"}},
              run("fp32-few", 1, few, {"--threads", "2"}), int4);
}

TEST_F(QuantizedSmolLm2, Int8IsCloseToFp32AndGivesTheSameBytesHoweverTheJobIsCut) {
  const std::string int8 = converted("int8", "210 matrices: int8 quantized again from Q4_1");
  const std::vector<Json> lines = requests();
  const auto exact = run("exact", 1, lines, {"--threads", "2"});
  const auto base = run("int8-base", 1, lines, {"--threads", "2"}, int8);
  Agreement agreement;
  int answers = 0;
  for (const auto& [id, answer] : base) {
    if (!id.starts_with("greedy-")) continue;
    compare(Json::parse(answer), Json::parse(exact.at(id)), agreement);
    ++answers;
  }
  ASSERT_GT(agreement.tokens, 100);
  const double mean = agreement.sum / agreement.tokens;
  std::cout << "int8 against fp32 weights: " << agreement.same << " of " << answers
            << " greedy answers alike; log-probabilities differ by " << mean
            << " in the mean and at most " << agreement.largest << " over " << agreement.tokens
            << " tokens\n";
  EXPECT_GT(agreement.largest, 0) << "int8 changes nothing";
  EXPECT_LT(mean, 0.05);
  std::vector<Json> reversed(lines.rbegin(), lines.rend());
  expect_same({"int8-two-ranks", 2, reversed, {"--threads", "1"}}, base, int8);
  expect_same({"int8-three-ranks", 3, lines, {"--threads", "1", "--max-step-tokens", "77"}}, base,
              int8);
}

TEST_F(QuantizedSmolLm2, RefusesBf16Computing) {
  const std::string int4 = converted("int4", "");
  const auto result = test::run_process(
      {CARAVAN_PROGRAM, "run", "--model", int4, "--prompt", "Hi", "--compute", "bf16"});
  EXPECT_EQ(result.code, 78) << result.err;
  EXPECT_NE(result.err.find("stores int4"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace caravan
