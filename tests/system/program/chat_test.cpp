// Chats through the whole program, against what the models' own templates print
// (tests/data/text/chat): requests in OpenAI's form, `max_tokens` 0 and `return_token_ids`.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "caravan/checkpoint/model_file.h"
#include "caravan/text/tokenizer.h"
#include "system/program/program_rig.h"

namespace caravan::test {
namespace {

using Json = nlohmann::ordered_json;  // tools keep the order of their keys

std::vector<Json> template_records() {
  std::vector<Json> records;
  std::istringstream lines(read_whole(std::string(CARAVAN_TEST_DATA) + "/text/chat/vectors.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json record = Json::parse(line);
    if (record.at("renderer") == "hf_jinja") records.push_back(record);
  }
  return records;
}

Json request_of(const Json& record) {
  const Json& given = record.at("options");
  Json body = {{"messages", record.at("messages")}, {"max_tokens", 0}, {"return_token_ids", true}};
  for (const char* name : {"add_generation_prompt", "tools"}) {
    if (given.contains(name)) body[name] = given.at(name);
  }
  if (record.at("template") == "llama3.0-hf.jinja") body["add_generation_prompt"] = true;
  Json arguments = Json::object();
  for (const char* name : {"date_string", "tools_in_user_message", "builtin_tools"}) {
    if (given.contains(name)) arguments[name] = given.at(name);
  }
  // The template of 3.2 asks the clock, which the vectors set.
  if (record.at("family") == "llama3.2" && !arguments.contains("date_string")) {
    arguments["date_string"] = given.value("today", "01 Dec 2026");
  }
  body["chat_template_kwargs"] = arguments;
  return {{"custom_id", record.at("id")},
          {"method", "POST"},
          {"url", "/v1/chat/completions"},
          {"body", body}};
}

class ChatTest : public ProgramTest {
 protected:
  /// Runs the records of some families; returns how many there were.
  int expect_prompts(const std::string& checkpoint, const std::string& format,
                     const std::vector<std::string>& families) {
    const std::string model = folder_.file(checkpoint + ".h5");
    const ProcessResult converted =
        caravan({"convert", std::string(CARAVAN_TEST_DATA) + "/checkpoints/" + checkpoint, model,
                 "--chat-format", format, "--overwrite"});
    EXPECT_EQ(converted.code, 0) << converted.err;
    std::map<std::string, Json> records;
    std::string lines;
    for (const Json& record : template_records()) {
      if (std::find(families.begin(), families.end(), record.at("family")) == families.end())
        continue;
      records[record.at("id")] = record;
      lines += request_of(record).dump() + "\n";
    }
    folder_.write("prompts.jsonl", lines);
    const ProcessResult result =
        caravan({"run", "--model", model, "--input", input(), "--output", folder_.file("out.jsonl"),
                 "--overwrite", "--on-invalid", "record"});
    EXPECT_EQ(result.code, 0) << result.err;
    const text::Tokenizer tokenizer(checkpoint::ModelFile::open(model).description().tokenizer);
    for (const auto& answer : read_lines(folder_.file("out.jsonl"))) {
      expect_prompt(records.at(answer.at("custom_id")), answer, tokenizer);
    }
    return static_cast<int>(records.size());
  }

 private:
  static void expect_prompt(const Json& record, const nlohmann::json& answer,
                            const text::Tokenizer& tokenizer) {
    SCOPED_TRACE(record.at("id").dump() + " " + record.at("case").dump());
    if (record.contains("error")) {
      EXPECT_EQ(answer.at("error").at("code"), "invalid_value") << answer;
      return;
    }
    ASSERT_EQ(answer.at("error"), nullptr) << answer;
    const std::vector<std::int32_t> ids =
        answer.at("response").at("body").at("prompt_token_ids").get<std::vector<std::int32_t>>();
    std::string text = tokenizer.decode_bytes(ids, true);
    // SentencePiece puts a space before each part between control tokens.
    const std::string spaced = "<s> [INST]";
    for (auto at = text.find(spaced); at != std::string::npos; at = text.find(spaced)) {
      text.erase(at + 3, 1);
    }
    // The tiny checkpoint has a default system text of its own.
    std::string expected = record.at("rendered");
    const std::string own = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
    if (const auto at = expected.find(own); at != std::string::npos) {
      expected.replace(at, own.size(), "You are a tiny test model");
    }
    EXPECT_EQ(text, expected);
  }
};

TEST_F(ChatTest, Llama3) { EXPECT_EQ(expect_prompts("tiny-llama3", "llama3", {"llama3"}), 30); }

TEST_F(ChatTest, Llama31AndLater) {
  EXPECT_EQ(expect_prompts("tiny-llama32", "llama3.1", {"llama3.1", "llama3.2", "llama3.3"}), 58);
}

TEST_F(ChatTest, ChatMl) { EXPECT_EQ(expect_prompts("tiny-uneven", "chatml", {"smollm2"}), 14); }

TEST_F(ChatTest, Llama2) { EXPECT_EQ(expect_prompts("tiny-llama2", "llama2", {"llama2"}), 14); }

TEST_F(ChatTest, ToolsAreRefusedByNameWhereTheLayoutHasNone) {
  const nlohmann::json tool = {{"type", "function"}, {"function", {{"name", "f"}}}};
  folder_.write("prompts.jsonl", chat_request("a", "Hi", {{"tools", {tool}}}));
  const ProcessResult result = caravan(run_arguments("out.jsonl", {"--chat-format", "llama3"}));
  EXPECT_EQ(result.code, 65) << result.err;
  EXPECT_NE(result.err.find("prompts.jsonl:1: tools: the chat format llama3 has no tools"),
            std::string::npos)
      << result.err;
}

TEST_F(ChatTest, ThePrefilledAnswerGoesOn) {
  nlohmann::json body = {{"max_tokens", 0}, {"return_token_ids", true}};
  const auto ids = [&](const nlohmann::json& messages, bool goes_on) {
    body["messages"] = messages;
    body["continue_final_message"] = goes_on;
    const nlohmann::json request = {
        {"custom_id", "a"}, {"url", "/v1/chat/completions"}, {"body", body}};
    folder_.write("prompts.jsonl", request.dump() + "\n");
    const ProcessResult result = caravan(run_arguments("out.jsonl", {"--overwrite"}));
    EXPECT_EQ(result.code, 0) << result.err;
    return read_lines(folder_.file("out.jsonl"))
        .at(0)["response"]["body"]["prompt_token_ids"]
        .get<std::vector<std::int32_t>>();
  };
  const nlohmann::json user = {{"role", "user"}, {"content", "Count"}};
  const auto asked = ids(nlohmann::json::array({user}), false);
  const nlohmann::json answer = {{"role", "assistant"}, {"content", "one two"}};
  const auto begun = ids(nlohmann::json::array({user, answer}), true);
  ASSERT_GT(begun.size(), asked.size());
  const auto shared = static_cast<std::ptrdiff_t>(asked.size());
  EXPECT_TRUE(std::equal(asked.begin(), asked.end() - 1, begun.begin()));
  const text::Tokenizer tokenizer(checkpoint::ModelFile::open(model()).description().tokenizer);
  EXPECT_EQ(tokenizer.decode_bytes({begun.begin() + shared - 1, begun.end()}, true), "\n\none two");
}

TEST_F(ChatTest, TheDateIsFixedUnlessItIsGiven) {
  const auto shown = [&](const Arguments& more) {
    Arguments arguments = {"tokenize", "--model", model(), "--chat", "Hi"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return caravan(arguments).out;
  };
  EXPECT_EQ(shown({}), shown({"--date", "26 Jul 2024"}));
  EXPECT_NE(shown({}), shown({"--date", "27 Jul 2024"}));
}

}  // namespace
}  // namespace caravan::test
