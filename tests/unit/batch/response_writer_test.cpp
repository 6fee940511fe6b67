#include "caravan/batch/response_writer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "unit/batch/parser_rig.h"

namespace caravan::batch {
namespace {

using Json = nlohmann::json;
using test::kEosId;
using test::kStopPiece;

class ResponseWriterTest : public testing::Test {
 protected:
  static Record chat_record() {
    Record record;
    record.custom_id = "r\"1";
    record.endpoint = Endpoint::kChat;
    return record;
  }
  static Record completion_record(std::vector<CompletionPrompt> prompts) {
    Record record;
    record.custom_id = "r1";
    record.endpoint = Endpoint::kCompletion;
    record.prompts = std::move(prompts);
    return record;
  }
  static engine::Choice choice(std::vector<std::int32_t> ids, std::string text) {
    engine::Choice made;
    made.token_ids = std::move(ids);
    made.text = std::move(text);
    return made;
  }
  Json parse(const Record& record, const std::vector<TokenizedPrompt>& prompts,
             const std::vector<engine::Answer>& answers) const {
    const std::string line = writer_.answer_line(record, prompts, answers);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    EXPECT_FALSE(is_error_line(line));
    return Json::parse(line);
  }

  text::Tokenizer tokenizer_{test::byte_tokenizer_spec()};
  ResponseWriter writer_{tokenizer_, "tiny", "hash"};
};

TEST_F(ResponseWriterTest, ChatLineHasExactlyTheDocumentedForm) {
  Record record = chat_record();
  engine::Answer answer;
  answer.choices = {choice({'H', 'i', kEosId}, "Hi")};
  answer.choices[0].finish_reason = engine::FinishReason::kStop;
  const std::string line = writer_.answer_line(record, {{{1, 2, 3}, 9}}, {answer});
  const Json json = Json::parse(line);
  const std::string id = json["response"]["request_id"];
  EXPECT_EQ(
      line,
      R"({"id":"batch_req_)" + id +
          R"(","custom_id":"r\"1","response":{"status_code":200,"request_id":")" + id +
          R"(","body":{"id":"chatcmpl-)" + id +
          R"(","object":"chat.completion","created":0,"model":"tiny","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"logprobs":null,"finish_reason":"stop","stop_reason":null}],"usage":{"prompt_tokens":3,"completion_tokens":3,"total_tokens":6}}},"error":null})");
  EXPECT_EQ(id.size(), 24U);
}

TEST_F(ResponseWriterTest, IdsDependOnRecordAndModelAlone) {
  engine::Answer answer;
  answer.choices = {choice({'H'}, "H")};
  const auto id_of = [&](const Record& record, const std::string& key) {
    const ResponseWriter writer(tokenizer_, "tiny", key);
    return Json::parse(writer.answer_line(record, {{{1}, 1}}, {answer}))["id"].get<std::string>();
  };
  Record other = chat_record();
  other.content_hash = 5;
  EXPECT_EQ(id_of(chat_record(), "hash"), id_of(chat_record(), "hash"));
  EXPECT_NE(id_of(chat_record(), "hash"), id_of(chat_record(), "other"));
  EXPECT_NE(id_of(chat_record(), "hash"), id_of(other, "hash"));
}

TEST_F(ResponseWriterTest, ChatLogprobsCarryRawBytes) {
  Record record = chat_record();
  record.output.logprobs = true;
  record.output.top_logprobs = 1;
  engine::Answer answer;
  answer.choices = {choice({0xc3, 0xa9, kEosId}, "\xc3\xa9")};
  answer.choices[0].logprobs = {{0xc3, -0.1F, {{0xc3, -0.1F}, {'x', -3.0F}}},
                                {0xa9, -std::numeric_limits<float>::infinity(), {{'y', -1.5F}}},
                                {kEosId, -0.25F, {}}};
  const Json content =
      parse(record, {{{1}, 3}}, {answer})["response"]["body"]["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 3U);
  EXPECT_EQ(content[0]["bytes"], Json::array({0xc3}));
  EXPECT_EQ(content[0]["token"], "\xef\xbf\xbd");
  EXPECT_EQ(content[0]["logprob"].dump(), "-0.1");  // shortest digits of a float32
  EXPECT_EQ(content[0]["top_logprobs"].size(), 1U);
  EXPECT_EQ(content[1]["bytes"], Json::array({0xa9}));
  EXPECT_EQ(content[1]["logprob"], -9999.0);
  EXPECT_EQ(content[1]["top_logprobs"][0]["token"], "y");
  EXPECT_EQ(content[2]["token"], "<eos>");  // not part of the text
  EXPECT_EQ(content[2]["bytes"], Json::array());
}

TEST_F(ResponseWriterTest, CompletionChoicesCountOverPromptsAndSamples) {
  const Record record = completion_record({"a", std::vector<std::int32_t>{'b'}});
  engine::Answer first;
  first.choices = {choice({'1'}, "1"), choice({'2'}, "2")};
  first.choices[1].finish_reason = engine::FinishReason::kStop;
  first.choices[1].stop_reason = std::string("END");
  engine::Answer second;
  second.choices = {choice({'3'}, "3"), choice({'4'}, "4")};
  second.choices[0].stop_reason = std::int32_t{65};
  const Json body = parse(record, {{{'a'}, 1}, {{'b'}, 1}}, {first, second})["response"]["body"];
  EXPECT_EQ(body["object"], "text_completion");
  ASSERT_EQ(body["choices"].size(), 4U);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["text"], std::to_string(i + 1));
  }
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["choices"][1]["finish_reason"], "stop");
  EXPECT_EQ(body["choices"][1]["stop_reason"], "END");
  EXPECT_EQ(body["choices"][2]["stop_reason"], 65);
  EXPECT_EQ(body["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(body["usage"]["completion_tokens"], 4);
}

TEST_F(ResponseWriterTest, EchoScoresThePrompt) {
  Record record =
      completion_record({"\xc3\xa9"
                         "b"});
  record.output.echo = true;
  record.output.logprobs = true;
  record.output.top_logprobs = 1;
  engine::Answer answer;
  answer.prompt_logprobs = {
      {0xc3, 0, {}}, {0xa9, -1.0F, {{'q', -0.5F}}}, {'b', -2.0F, {{'b', -2.0F}}}};
  answer.choices = {choice({kStopPiece}, "STOP")};
  answer.choices[0].logprobs = {{kStopPiece, -0.5F, {{kStopPiece, -0.5F}}}};
  const Json body = parse(record, {{{0xc3, 0xa9, 'b'}, 1}}, {answer})["response"]["body"];
  const Json& made = body["choices"][0];
  EXPECT_EQ(made["text"],
            "\xc3\xa9"
            "bSTOP");
  const Json& logprobs = made["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Json::array({"bytes:\\xc3", "bytes:\\xa9", "b", "STOP"}));
  EXPECT_EQ(logprobs["token_logprobs"], Json::array({nullptr, -1.0, -2.0, -0.5}));
  EXPECT_EQ(logprobs["text_offset"], Json::array({0, 0, 1, 2}));
  EXPECT_EQ(logprobs["top_logprobs"][0], nullptr);
  EXPECT_EQ(logprobs["top_logprobs"][1], (Json{{"q", -0.5}, {"bytes:\\xa9", -1.0}}));
  EXPECT_EQ(logprobs["top_logprobs"][2], (Json{{"b", -2.0}}));
}

TEST_F(ResponseWriterTest, OffsetsFollowTheTextWhereBytesAreNoText) {
  Record record = completion_record({"a"});
  record.output.logprobs = true;
  engine::Answer answer;
  answer.choices = {choice({0x92, 'b', 'c'},
                           "\xef\xbf\xbd"
                           "bc")};
  answer.choices[0].logprobs = {{0x92, -1, {}}, {'b', -1, {}}, {'c', -1, {}}};
  const Json body = parse(record, {{{'a'}, 3}}, {answer})["response"]["body"];
  EXPECT_EQ(body["choices"][0]["logprobs"]["text_offset"], Json::array({0, 1, 2}));
}

TEST_F(ResponseWriterTest, OffsetsCountBrokenCharactersBeforeWhatFollows) {
  Record record = completion_record({"a"});
  record.output.logprobs = true;
  engine::Answer answer;
  answer.choices = {choice({'i', 0xe2, 0x82, 'p', 'q'}, "i\ufffdpq")};
  answer.choices[0].logprobs = {
      {'i', -1, {}}, {0xe2, -1, {}}, {0x82, -1, {}}, {'p', -1, {}}, {'q', -1, {}}};
  const Json body = parse(record, {{{'a'}, 3}}, {answer})["response"]["body"];
  EXPECT_EQ(body["choices"][0]["logprobs"]["text_offset"], Json::array({0, 1, 1, 2, 3}));
}

// SentencePiece puts a space in front of a text, which is taken away again where one begins.
TEST(ResponseWriter, OffsetsBehindAPromptOfControlTokensAreThoseOfTheText) {
  text::TokenizerSpec spec;
  spec.kind = text::TokenizerKind::kSentencePiece;
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.emplace_back(1, static_cast<char>(byte));
    spec.byte_ids.push_back(byte);
  }
  spec.tokens.insert(spec.tokens.end(), {" Lay", ""});
  spec.added_tokens = {{257, "<s>", true}};
  spec.bos_id = 257;
  spec.add_bos = true;
  spec.space_prefix = text::SpacePrefix::kEverySegment;
  const text::Tokenizer tokenizer(spec);
  const ResponseWriter writer(tokenizer, "tiny", "hash");
  Record record;
  record.endpoint = Endpoint::kCompletion;
  record.output.logprobs = true;
  engine::Answer answer;
  answer.choices.resize(1);
  answer.choices[0].token_ids = {256, 256};
  answer.choices[0].logprobs = {{256, -1, {}}, {256, -1, {}}};
  const auto offsets = [&](const std::string& prompt, std::vector<std::int32_t> ids,
                           const std::string& text) {
    record.prompts = {prompt};
    answer.prompt_logprobs.clear();
    for (const std::int32_t id : ids) answer.prompt_logprobs.push_back({id, -1, {}});
    answer.choices[0].text = text;
    const Json line = Json::parse(writer.answer_line(record, {{std::move(ids), 2}}, {answer}));
    return line["response"]["body"]["choices"][0]["logprobs"]["text_offset"];
  };
  EXPECT_EQ(offsets("", {257}, "Lay Lay"), Json::array({0, 3}));
  EXPECT_EQ(offsets("Lay", {257, 256}, " Lay Lay"), Json::array({0, 4}));
  record.output.echo = true;
  for (const bool shows_special : {false, true}) {
    record.sampling.show_special = shows_special;
    EXPECT_EQ(offsets("", {257}, "Lay Lay"), Json::array({0, 0, 3}));
    EXPECT_EQ(offsets("Lay", {257, 256}, " Lay Lay"), Json::array({0, 0, 3, 7}));
  }
}

TEST_F(ResponseWriterTest, TokenIdsStandWhereVllmPutsThem) {
  engine::Answer answer;
  answer.choices = {choice({7}, "x")};
  answer.prompt_logprobs = {{1, 0, {}}, {2, -1.5F, {{9, -0.5F}, {2, -1.5F}}}};
  Record chat = chat_record();
  chat.output.return_token_ids = true;
  chat.output.prompt_logprobs = 1;
  const Json chat_body = parse(chat, {{{1, 2}, 1}}, {answer})["response"]["body"];
  EXPECT_EQ(chat_body["prompt_token_ids"], Json::array({1, 2}));
  EXPECT_EQ(chat_body["choices"][0]["token_ids"], Json::array({7}));
  EXPECT_EQ(chat_body["prompt_logprobs"][0], nullptr);
  EXPECT_EQ(chat_body["prompt_logprobs"][1]["9"]["rank"], 1);
  EXPECT_EQ(chat_body["prompt_logprobs"][1]["2"]["logprob"], -1.5);
  EXPECT_EQ(chat_body["prompt_logprobs"][1]["2"]["rank"], nullptr);
  Record completion = completion_record({std::vector<std::int32_t>{1, 2}});
  completion.output.return_token_ids = true;
  const Json body = parse(completion, {{{1, 2}, 1}}, {answer})["response"]["body"];
  EXPECT_FALSE(body.contains("prompt_token_ids"));
  EXPECT_EQ(body["choices"][0]["prompt_token_ids"], Json::array({1, 2}));
  EXPECT_EQ(body["choices"][0]["token_ids"], Json::array({7}));
}

TEST_F(ResponseWriterTest, ErrorLinesHaveNoBody) {
  const std::string line =
      writer_.error_line("r1", 5, {404, "model_not_found", "no \"such\"\nmodel \xff", "model"});
  EXPECT_TRUE(is_error_line(line));
  const Json json = Json::parse(line);
  EXPECT_EQ(json["custom_id"], "r1");
  EXPECT_EQ(json["response"]["status_code"], 404);
  EXPECT_EQ(json["response"]["body"], nullptr);
  EXPECT_EQ(json["error"]["code"], "model_not_found");
  EXPECT_EQ(json["error"]["message"], "no \"such\"\nmodel \xef\xbf\xbd");
  EXPECT_EQ(json["error"]["type"], "invalid_request_error");
  EXPECT_EQ(json["error"]["param"], "model");
  EXPECT_EQ(
      Json::parse(writer_.error_line("r", 5, {500, "internal_error", "x", ""}))["error"]["param"],
      nullptr);
}

TEST_F(ResponseWriterTest, ErrorLinesOfOneCustomIdHaveIdsOfTheirOwn) {
  const auto id_of = [&](std::uint64_t hash) {
    return Json::parse(writer_.error_line("r", hash, {400, "x", "y", ""}))["id"].get<std::string>();
  };
  EXPECT_EQ(id_of(1), id_of(1));
  EXPECT_NE(id_of(1), id_of(2));
}

TEST_F(ResponseWriterTest, AnyTextGivesValidJson) {
  Record record = chat_record();
  engine::Answer answer;
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text += static_cast<char>(byte);
  answer.choices = {choice({1}, text)};
  parse(record, {{{1}, 1}}, {answer});
}

}  // namespace
}  // namespace caravan::batch
