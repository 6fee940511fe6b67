#pragma once
// The built program, a tiny converted model and folders for a test's files.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support/process.h"
#include "support/temporary_folder.h"

namespace caravan::test {

using Arguments = std::vector<std::string>;

/// Open MPI refuses root without these; containers often lack the system call behind the third.
inline std::map<std::string, std::string> launch_environment() {
  return {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
          {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
          {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"}};
}

inline Arguments caravan_command(const Arguments& arguments) {
  Arguments command = {CARAVAN_PROGRAM};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

inline Arguments launch_command(int ranks, const Arguments& arguments) {
  Arguments command = {CARAVAN_LAUNCHER, "-n", std::to_string(ranks)};
  std::istringstream flags(CARAVAN_LAUNCHER_FLAGS);
  for (std::string flag; flags >> flag;) command.push_back(flag);
  const Arguments program = caravan_command(arguments);
  command.insert(command.end(), program.begin(), program.end());
  return command;
}

inline ProcessResult caravan(const Arguments& arguments, ProcessOptions options = {}) {
  options.environment.merge(launch_environment());
  return run_process(caravan_command(arguments), options);
}

inline ProcessResult caravan_on(int ranks, const Arguments& arguments) {
  ProcessOptions options;
  options.environment = launch_environment();
  return run_process(launch_command(ranks, arguments), options);
}

/// A folder with `model.h5`, converted once for all tests of a program.
class ProgramTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = new TemporaryFolder();
    const ProcessResult result =
        caravan({"convert", std::string(CARAVAN_TEST_DATA) + "/checkpoints/tiny-llama31", model()});
    ASSERT_EQ(result.code, 0) << result.err;
  }
  static void TearDownTestSuite() {
    delete shared_;
    shared_ = nullptr;
  }
  static std::string model() { return shared_->file("model.h5"); }

  /// `run` with model, input and output of this test's folder, and more.
  Arguments run_arguments(const std::string& output, const Arguments& more = {}) const {
    Arguments arguments = {"run",      "--model",           model(), "--input", input(),
                           "--output", folder_.file(output)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  std::string input() const { return folder_.file("prompts.jsonl"); }

  TemporaryFolder folder_;

 private:
  static inline TemporaryFolder* shared_ = nullptr;
};

inline std::vector<nlohmann::json> read_lines(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(read_whole(path));
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

inline std::string chat_request(const std::string& id, const std::string& text,
                                const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json body = {{"messages", {{{"role", "user"}, {"content", text}}}}};
  body.update(more);
  return nlohmann::json{
             {"custom_id", id}, {"method", "POST"}, {"url", "/v1/chat/completions"}, {"body", body}}
             .dump() +
         "\n";
}

inline std::string completion_request(const std::string& id, const nlohmann::json& prompt,
                                      const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json body = {{"prompt", prompt}};
  body.update(more);
  return nlohmann::json{
             {"custom_id", id}, {"method", "POST"}, {"url", "/v1/completions"}, {"body", body}}
             .dump() +
         "\n";
}

}  // namespace caravan::test
