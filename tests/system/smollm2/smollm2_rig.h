#pragma once
// A real model from its GGUF file to answers: what the tests of it share.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/process.h"

namespace caravan {

using Json = nlohmann::json;
namespace fs = std::filesystem;

inline std::vector<Json> read_lines(const std::string& path) {
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

// Log-probabilities of the chosen tokens as far as both answers choose the same.
struct Agreement {
  double largest = 0;
  double sum = 0;
  int tokens = 0;  // compared
  int same = 0;    // answers
};

inline void compare(const Json& answer, const Json& other, Agreement& agreement) {
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

}  // namespace caravan
