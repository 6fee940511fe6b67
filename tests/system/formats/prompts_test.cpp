// What went wrong for users of other programs with start tokens, stop tokens, dates and stop
// strings, on a model with Llama 3.1's special tokens.

#include "system/program/program_rig.h"

namespace caravan::test {
namespace {

using nlohmann::json;

constexpr int kBos = 1792, kEndOfText = 1793, kEom = 1800, kEot = 1801;

class PromptsTest : public ProgramTest {
 protected:
  /// The answers to requests, by custom_id.
  std::map<std::string, json> run(const std::string& requests, const Arguments& more = {}) {
    folder_.write("prompts.jsonl", requests);
    Arguments arguments = run_arguments("answers.jsonl", {"--overwrite", "--max-tokens", "8"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    last_ = caravan(arguments);
    EXPECT_EQ(last_.code, 0) << last_.err;
    std::map<std::string, json> answers;
    for (const json& line : read_lines(folder_.file("answers.jsonl"))) {
      answers[line.at("custom_id")] = line.at("response").at("body");
    }
    return answers;
  }
  std::string text_of(const std::vector<int>& ids) {
    Arguments arguments = {"tokenize", "--model", model(), "--ids"};
    std::string list;
    for (const int id : ids) list += std::to_string(id) + " ";
    arguments.push_back(list);
    return caravan(arguments).out;
  }
  ProcessResult last_;
};

TEST_F(PromptsTest, BeginWithExactlyOneStartToken) {
  const json show = {{"max_tokens", 0}, {"return_token_ids", true}};
  const auto answers =
      run(chat_request("chat", "Hello", show) + completion_request("raw", "Hello", show) +
          completion_request("spelled", "<|begin_of_text|>Hello", show));
  for (const auto& [id, body] : answers) {
    SCOPED_TRACE(id);
    const json& holder = id == "chat" ? body : body.at("choices")[0];
    const auto ids = holder.at("prompt_token_ids").get<std::vector<int>>();
    ASSERT_GT(ids.size(), 1U);
    EXPECT_EQ(ids.front(), kBos);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), kBos), 1);
  }
  EXPECT_NE(last_.err.find("begin with the spelling of the start token"), std::string::npos);
}

TEST_F(PromptsTest, EveryStopTokenOfTheModelEndsAnAnswerAndIsNotShown) {
  std::string requests;
  for (const int id : {kEndOfText, kEom, kEot}) {
    requests += chat_request(std::to_string(id), "Go on",
                             {{"temperature", 0}, {"logit_bias", {{std::to_string(id), 100}}}});
  }
  for (const auto& [id, body] : run(requests)) {
    SCOPED_TRACE(id);
    EXPECT_EQ(body.at("choices")[0].at("finish_reason"), "stop");
    EXPECT_EQ(body.at("choices")[0].at("message").at("content"), "");
    EXPECT_EQ(body.at("usage").at("completion_tokens"), 1);
  }
}

TEST_F(PromptsTest, TheDateIsAnOptionAndNotTheClock) {
  const std::string request =
      chat_request("a", "Hello", {{"max_tokens", 0}, {"return_token_ids", true}});
  const auto prompt = [&](const Arguments& more) {
    return text_of(run(request, more).at("a").at("prompt_token_ids"));
  };
  EXPECT_NE(prompt({}).find("Today Date: 26 Jul 2024"), std::string::npos) << prompt({});
  const json manifest = json::parse(read_whole(folder_.file("answers.manifest.json")));
  EXPECT_NE(manifest.dump().find("26 Jul 2024"), std::string::npos);
  EXPECT_NE(prompt({"--date", "1 Jan 2030"}).find("Today Date: 1 Jan 2030"), std::string::npos);
  // Llama 3's layout has no block with the date.
  const std::string plain = prompt({"--chat-format", "llama3"});
  EXPECT_EQ(plain.find("Today Date"), std::string::npos) << plain;
  EXPECT_NE(plain.find("<|start_header_id|>user"), std::string::npos) << plain;
}

TEST_F(PromptsTest, StopStringsBelongToTheirRecordAlone) {
  const json free = {{"temperature", 0}, {"ignore_eos", true}, {"max_tokens", 8}};
  const json whole = run(completion_request("free", "Once", free)).at("free");
  const std::string text = whole.at("choices")[0].at("text");
  const auto letter = std::find_if(text.begin() + 1, text.end(), [](char c) { return c > ' '; });
  ASSERT_NE(letter, text.end()) << text;
  const std::string stop(1, *letter);
  std::string requests;
  for (int i = 0; i < 100; ++i) {
    json body = free;
    body["stop"] = json::array({i % 2 == 0 ? "never " + std::to_string(i) : stop});
    requests += completion_request(std::to_string(i), "Once", body);
  }
  const auto answers = run(requests);
  ASSERT_EQ(answers.size(), 100U);
  for (const auto& [id, body] : answers) {
    const bool stops = std::stoi(id) % 2 == 1;
    EXPECT_EQ(body.at("choices")[0].at("text"), stops ? text.substr(0, text.find(stop)) : text)
        << id;
    EXPECT_EQ(body.at("choices")[0].at("finish_reason"), stops ? "stop" : "length") << id;
  }
}

}  // namespace
}  // namespace caravan::test
