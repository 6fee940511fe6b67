// A real model from its GGUF file to answers: the stored continuations, and the same bytes however
// the job is cut.

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "smollm2_rig.h"

namespace caravan {
namespace {

TEST_F(SmolLm2, ContinuesAsTheReferenceAndWithTheSameBytesHoweverTheJobIsCut) {
  const std::vector<Json> lines = requests();
  const auto base = run("base", 1, lines, {"--threads", "2"});
  for (const Json& chat : read_lines(CARAVAN_TEST_DATA "/smollm2/expected.jsonl")) {
    const std::string id = chat["id"];
    ASSERT_TRUE(base.contains("greedy-" + id));
    const Json answer = Json::parse(base.at("greedy-" + id));
    EXPECT_EQ(answer["prompt_token_ids"], chat["prompt_ids"]) << id;
    const Json& choice = answer["choices"][0];
    ASSERT_EQ(choice["token_ids"].size(), 64U) << id;
    for (std::size_t i = 0; i < 64 && chat["greedy_gaps"][i] >= 1e-3; ++i) {
      ASSERT_EQ(choice["token_ids"][i], chat["greedy_ids"][i]) << id << ", step " << i;
      ASSERT_NEAR(choice["logprobs"]["content"][i]["logprob"].get<double>(),
                  chat["greedy_logprobs"][i].get<double>(), 1e-3)
          << id << ", step " << i;
    }
  }

  std::vector<Json> reversed(lines.rbegin(), lines.rend());
  std::vector<Json> rotated = lines;
  std::rotate(rotated.begin(), rotated.begin() + 11, rotated.end());
  std::vector<Cut> cuts = {
      {"two-ranks", 2, lines, {"--threads", "1"}},
      {"three-ranks-reversed", 3, reversed, {"--threads", "1", "--max-step-tokens", "100"}},
      {"four-ranks", 4, rotated, {"--threads", "1"}},
      {"five-ranks-few-at-once", 5, reversed, {"--threads", "1", "--max-sequences", "7"}},
      {"avx2-one-thread-small-chunks",
       1,
       rotated,
       {"--threads", "1", "--isa", "avx2", "--max-sequences", "6", "--max-step-tokens", "23"}},
      {"small-cache", 1, reversed, {"--threads", "2", "--kv-memory", "24MiB"}},
      {"avx2-three-ranks", 3, lines, {"--threads", "2", "--isa", "avx2"}},
      {"messages-two-ranks", 2, rotated, {"--threads", "1", "--exchange", "mpi"}},
      {"messages-five-ranks", 5, lines, {"--threads", "1", "--exchange", "mpi"}},
  };
  if (has_avx512()) {
    cuts.push_back({"avx512-one-rank", 1, rotated, {"--threads", "1", "--isa", "avx512"}});
    cuts.push_back({"avx512-two-ranks", 2, reversed, {"--threads", "2", "--isa", "avx512"}});
  }
  for (const Cut& cut : cuts) expect_same(cut, base);
}

// Plain kernels are slow: few tokens of few requests.
TEST_F(SmolLm2, PlainKernelsGiveTheSameBytes) {
  std::vector<Json> few = requests();
  few.resize(6);
  for (Json& line : few) line["body"]["max_tokens"] = 5;
  const auto base = run("few", 1, few, {"--threads", "1"});
  expect_same({"generic-one-rank", 1, few, {"--threads", "2", "--isa", "generic"}}, base);
  expect_same({"generic-four-ranks", 4, few, {"--threads", "1", "--isa", "generic"}}, base);
}

TEST_F(SmolLm2, AnswersAloneAsInTheBatch) {
  std::vector<Json> few = requests();
  few.resize(4);
  const auto together = run("together", 1, few, {});
  for (const Json& line : few) {
    const std::string id = line["custom_id"];
    const auto alone = run("alone-" + id, 1, {line}, {"--isa", "avx2"});
    EXPECT_EQ(alone.at(id), together.at(id)) << id;
  }
}

TEST_F(SmolLm2, StopsWhereTheReferenceStops) {
  std::vector<Json> lines;
  const auto chats = read_lines(CARAVAN_TEST_DATA "/smollm2/expected.jsonl");
  for (const Json& chat : chats) {
    lines.push_back(request(chat["id"], {{"messages", chat["messages"]},
                                         {"add_generation_prompt", chat["add_generation_prompt"]},
                                         {"max_tokens", 64},
                                         {"temperature", 0},
                                         {"return_token_ids", true}}));
  }
  const auto answers = run("stops", 1, lines, {});
  for (const Json& chat : chats) {
    const std::string id = chat["id"];
    if (*std::min_element(chat["greedy_gaps"].begin(), chat["greedy_gaps"].end()) < 1e-3) continue;
    const Json choice = Json::parse(answers.at(id))["choices"][0];
    const bool stops = chat["stop_step"] >= 0;
    EXPECT_EQ(choice["finish_reason"], stops ? "stop" : "length") << id;
    EXPECT_EQ(choice["message"]["content"], chat["text_until_stop"]) << id;
  }
}

TEST_F(SmolLm2, Bf16ComputingIsCloseToFp32AndGivesTheSameBytesHoweverTheJobIsCut) {
  const auto converted =
      test::run_process({CARAVAN_PROGRAM, "convert", source_, bf16_model(), "--dtype", "bf16"});
  ASSERT_EQ(converted.code, 0) << converted.err;
  const std::vector<Json> lines = requests();
  const std::vector<std::string> bf16 = {"--compute", "bf16", "--threads"};
  const auto with = [&bf16](std::vector<std::string> more) {
    more.insert(more.begin(), bf16.begin(), bf16.end());
    return more;
  };
  const auto base = run("bf16-base", 1, lines, with({"2"}), bf16_model());
  const auto exact = run("fp32-of-bf16", 1, lines, {"--threads", "2"}, bf16_model());
  Agreement agreement;
  int answers = 0;
  for (const auto& [id, answer] : base) {
    if (!id.starts_with("greedy-")) continue;
    compare(Json::parse(answer), Json::parse(exact.at(id)), agreement);
    ++answers;
  }
  ASSERT_GT(agreement.tokens, 100);
  const double mean = agreement.sum / agreement.tokens;
  std::cout << "bf16 against fp32 computing: " << agreement.same << " of " << answers
            << " greedy answers alike; log-probabilities differ by " << mean
            << " in the mean and at most " << agreement.largest << " over " << agreement.tokens
            << " tokens\n";
  EXPECT_GT(agreement.largest, 0) << "--compute bf16 changes nothing";
  EXPECT_LT(mean, 0.05);
  EXPECT_LT(agreement.largest, 1);

  std::vector<Json> reversed(lines.rbegin(), lines.rend());
  for (const Cut& cut :
       std::vector<Cut>{{"bf16-two-ranks", 2, lines, with({"1"})},
                        {"bf16-three-ranks", 3, reversed, with({"1", "--max-step-tokens", "100"})},
                        {"bf16-one-thread-small-chunks", 1, reversed,
                         with({"1", "--max-sequences", "6", "--max-step-tokens", "23"})},
                        {"bf16-avx2", 1, reversed, with({"2", "--isa", "avx2"})}}) {
    expect_same(cut, base, bf16_model());
  }
  for (const std::size_t i : {std::size_t{0}, lines.size() / 2}) {
    expect_same({"bf16-alone-" + std::to_string(i), 1, {lines[i]}, with({"2"})},
                {{lines[i]["custom_id"], base.at(lines[i]["custom_id"])}}, bf16_model());
  }
}

}  // namespace
}  // namespace caravan
