// A real model from its GGUF file to answers: the stored continuations, and the same bytes however
// the job is cut.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/process.h"

namespace caravan {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

std::vector<Json> read_lines(const std::string& path) {
  std::vector<Json> lines;
  std::ifstream stream(path);
  for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
  return lines;
}

/// Converts the model once for all tests of this file.
class SmolLm2 : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = fs::path(CARAVAN_BINARY_DIR) / ("smollm2-" + std::to_string(getpid()));
    fs::create_directories(folder_);
    source_ = CARAVAN_MODELS_DIR "/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
    if (!fs::exists(source_)) return;
    const auto result = test::run_process({CARAVAN_PROGRAM, "convert", source_, model()});
    ASSERT_EQ(result.code, 0) << result.err;
  }
  static void TearDownTestSuite() { fs::remove_all(folder_); }
  void SetUp() override {
    if (!fs::exists(source_)) GTEST_SKIP() << source_ << " is not there (jobs/get-models.sh)";
  }

  static std::string model() { return (folder_ / "model.h5").string(); }
  static std::string bf16_model() { return (folder_ / "bf16.h5").string(); }
  static std::string path(const std::string& name) { return (folder_ / name).string(); }

  /// Greedy and sampled requests of the stored chats.
  static std::vector<Json> requests() {
    std::vector<Json> lines;
    for (const Json& chat : read_lines(CARAVAN_TEST_DATA "/smollm2/expected.jsonl")) {
      Json body = {{"messages", chat["messages"]},
                   {"add_generation_prompt", chat["add_generation_prompt"]},
                   {"max_tokens", 64},
                   {"ignore_eos", true},
                   {"temperature", 0},
                   {"logprobs", true},
                   {"top_logprobs", 2},
                   {"return_token_ids", true}};
      lines.push_back(request("greedy-" + chat["id"].get<std::string>(), body));
      body["temperature"] = 0.9;
      body["top_p"] = 0.9;
      body["top_k"] = 50;
      body["seed"] = 7;
      body["n"] = 2;
      body["max_tokens"] = 12;
      lines.push_back(request("sampled-" + chat["id"].get<std::string>(), body));
    }
    return lines;
  }
  static Json request(const std::string& id, const Json& body) {
    return {{"custom_id", id}, {"method", "POST"}, {"url", "/v1/chat/completions"}, {"body", body}};
  }

  /// Runs the requests and gives the choices and usage of each record, as text, by custom_id.
  static std::map<std::string, std::string> run(const std::string& name, int ranks,
                                                const std::vector<Json>& lines,
                                                const std::vector<std::string>& options,
                                                const std::string& model_path = model()) {
    std::ofstream input(path(name + ".jsonl"));
    for (const Json& line : lines) input << line.dump() << "\n";
    input.close();
    std::vector<std::string> command = {
        CARAVAN_PROGRAM,       "run",      "--model",          model_path, "--input",
        path(name + ".jsonl"), "--output", path(name + ".out")};
    command.insert(command.end(), options.begin(), options.end());
    if (ranks > 1) {
      const std::vector<std::string> launcher = {
          CARAVAN_MPIEXEC, "-n", std::to_string(ranks), "--oversubscribe", "--bind-to", "none"};
      command.insert(command.begin(), launcher.begin(), launcher.end());
    }
    test::ProcessOptions process;
    process.deadline_seconds = 900;
    process.environment = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                           {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                           {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"}};
    const auto result = test::run_process(command, process);
    EXPECT_EQ(result.code, 0) << name << "\n" << result.err;
    std::map<std::string, std::string> answers;
    if (result.code != 0) return answers;
    for (const Json& line : read_lines(path(name + ".out"))) {
      const Json& body = line["response"]["body"];
      answers[line["custom_id"]] = Json{
          {"choices", body["choices"]},
          {"prompt_token_ids", body["prompt_token_ids"]},
          {"usage", body["usage"]}}.dump();
    }
    EXPECT_EQ(answers.size(), lines.size()) << name;
    return answers;
  }

  /// A way to run requests.
  struct Cut {
    std::string name;
    int ranks = 1;
    std::vector<Json> order;
    std::vector<std::string> options;
  };
  static void expect_same(const Cut& cut, const std::map<std::string, std::string>& base,
                          const std::string& model_path = model()) {
    const auto answers = run(cut.name, cut.ranks, cut.order, cut.options, model_path);
    for (const auto& [id, answer] : base) {
      ASSERT_TRUE(answers.contains(id)) << cut.name << ", " << id;
      EXPECT_EQ(answers.at(id), answer) << cut.name << ", " << id;
    }
  }

  static bool has_avx512() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }

  static inline fs::path folder_;
  static inline std::string source_;
};

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

// Log-probabilities of the chosen tokens as far as both answers choose the same.
struct Agreement {
  double largest = 0;
  double sum = 0;
  int tokens = 0;  // compared
  int same = 0;    // answers
};

void compare(const Json& answer, const Json& other, Agreement& agreement) {
  const Json& tokens = answer["choices"][0]["token_ids"];
  const Json& others = other["choices"][0]["token_ids"];
  std::size_t i = 0;
  for (; i < tokens.size() && tokens[i] == others[i]; ++i) {
    const double difference =
        std::abs(answer["choices"][0]["logprobs"]["content"][i]["logprob"].get<double>() -
                 other["choices"][0]["logprobs"]["content"][i]["logprob"].get<double>());
    agreement.largest = std::max(agreement.largest, difference);
    agreement.sum += difference;
    agreement.tokens += 1;
  }
  agreement.same += i == tokens.size() ? 1 : 0;
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
