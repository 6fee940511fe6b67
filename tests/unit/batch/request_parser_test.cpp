#include "caravan/batch/request_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

#include "unit/batch/parser_rig.h"

namespace caravan::batch {
namespace {

using test::chat_line;
using test::completion_line;
using test::parser_options;

Record parse_good(const std::string& line, const ParserOptions& options = parser_options()) {
  std::string custom_id;
  const ParsedRecord parsed = RequestParser(options).parse_line(line, custom_id);
  if (const auto* fault = std::get_if<RecordFault>(&parsed)) {
    ADD_FAILURE() << line << "\n" << fault->code << ": " << fault->message;
    return {};
  }
  return std::get<Record>(parsed);
}

RecordFault parse_bad(const std::string& line, const ParserOptions& options = parser_options()) {
  std::string custom_id;
  const ParsedRecord parsed = RequestParser(options).parse_line(line, custom_id);
  if (std::holds_alternative<Record>(parsed)) {
    ADD_FAILURE() << "accepted: " << line;
    return {};
  }
  return std::get<RecordFault>(parsed);
}

TEST(RequestParser, ReadsEveryFieldOfAChat) {
  const Record record = parse_good(
      R"({"custom_id":"r1","method":"POST","url":"/v1/chat/completions","body":{"model":"any","messages":[
        {"role":"system","content":"S"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}],
        "max_tokens":3,"max_completion_tokens":7,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"n":2,"seed":-1,
        "stop":["x","y"],"stop_token_ids":[65],"presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.1,
        "logit_bias":{"66":-100},"logprobs":true,"top_logprobs":4,"min_tokens":2,"ignore_eos":true,
        "include_stop_str_in_output":true,"skip_special_tokens":false,"return_token_ids":true,"prompt_logprobs":3}})");
  EXPECT_EQ(record.custom_id, "r1");
  EXPECT_EQ(record.endpoint, Endpoint::kChat);
  ASSERT_EQ(record.messages.size(), 2U);
  EXPECT_EQ(record.messages[1].content, "a\nb");
  EXPECT_TRUE(record.chat_options.add_generation_prompt);
  EXPECT_EQ(record.max_tokens, 7);
  const engine::SamplingParams& sampling = record.sampling;
  EXPECT_EQ(sampling.temperature, 0.5);
  EXPECT_EQ(sampling.top_p, 0.9);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_EQ(sampling.min_p, 0.1);
  EXPECT_EQ(sampling.num_choices, 2);
  EXPECT_EQ(sampling.seed, ~std::uint64_t{0});
  EXPECT_EQ(sampling.stop_strings, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(sampling.stop_ids, (std::vector<std::int32_t>{65})) << "ignore_eos";
  EXPECT_TRUE(sampling.eos_ids.empty());
  EXPECT_EQ(sampling.presence_penalty, 1);
  EXPECT_EQ(sampling.frequency_penalty, -1);
  EXPECT_EQ(sampling.repetition_penalty, 1.1);
  EXPECT_EQ(sampling.logit_bias.at(66), -100);
  EXPECT_TRUE(sampling.logprobs);
  EXPECT_EQ(sampling.top_logprobs, 4);
  EXPECT_TRUE(sampling.prompt_logprobs);
  EXPECT_EQ(sampling.top_prompt_logprobs, 3);
  EXPECT_EQ(sampling.min_tokens, 2);
  EXPECT_TRUE(sampling.include_stop_string);
  EXPECT_TRUE(sampling.show_special);
  EXPECT_TRUE(record.output.return_token_ids);
}

TEST(RequestParser, ReadsEveryFormOfCompletionPrompts) {
  EXPECT_EQ(std::get<std::string>(parse_good(completion_line("a", R"("one")")).prompts.at(0)),
            "one");
  EXPECT_EQ(parse_good(completion_line("a", R"(["one","two"])")).prompts.size(), 2U);
  const Record ids = parse_good(completion_line("a", "[1,2,3]"));
  ASSERT_EQ(ids.prompts.size(), 1U);
  EXPECT_EQ(std::get<std::vector<std::int32_t>>(ids.prompts[0]),
            (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(parse_good(completion_line("a", "[[1],[2,3]]")).prompts.size(), 2U);
}

TEST(RequestParser, CompletionsDefaultToSixteenTokensAndChatsToNoLimit) {
  EXPECT_EQ(parse_good(completion_line("a", R"("x")")).max_tokens, 16);
  EXPECT_FALSE(parse_good(chat_line("a")).max_tokens.has_value());
  ParserOptions options = parser_options();
  options.defaults.max_tokens = 5;
  EXPECT_EQ(parse_good(completion_line("a", R"("x")"), options).max_tokens, 5);
  EXPECT_EQ(parse_good(chat_line("a"), options).max_tokens, 5);
  EXPECT_EQ(parse_good(chat_line("a", R"(,"max_tokens":0)"), options).max_tokens, 0);
}

TEST(RequestParser, IgnoringTheEndLeavesTheRequestsOwnStopIds) {
  const auto both = parse_good(chat_line("a", R"(,"stop_token_ids":[65])")).sampling;
  EXPECT_EQ(both.stop_ids, (std::vector<std::int32_t>{test::kEosId, 65}));
  EXPECT_EQ(both.eos_ids, (std::vector<std::int32_t>{test::kEosId}));
  const auto own =
      parse_good(chat_line("a", R"(,"stop_token_ids":[65],"ignore_eos":true)")).sampling;
  EXPECT_EQ(own.stop_ids, (std::vector<std::int32_t>{65}));
  EXPECT_TRUE(own.eos_ids.empty());
  EXPECT_TRUE(parse_good(chat_line("a", R"(,"ignore_eos":true)")).sampling.stop_ids.empty());
}

TEST(RequestParser, CompletionsHaveNoMaxCompletionTokens) {
  std::vector<std::string> unknown;
  const RequestParser parser(parser_options(),
                             [&](const std::string& name) { unknown.push_back(name); });
  std::string custom_id;
  const ParsedRecord parsed =
      parser.parse_line(completion_line("a", R"("x")", R"(,"max_completion_tokens":7)"), custom_id);
  EXPECT_EQ(std::get<Record>(parsed).max_tokens, kDefaultCompletionTokens);
  EXPECT_EQ(unknown, (std::vector<std::string>{"max_completion_tokens"}));
}

TEST(RequestParser, EchoWithLogprobsAsksForPromptLogprobs) {
  const Record record = parse_good(completion_line("a", R"("x")", R"(,"echo":true,"logprobs":2)"));
  EXPECT_TRUE(record.sampling.prompt_logprobs);
  EXPECT_EQ(record.sampling.top_prompt_logprobs, 2);
  EXPECT_FALSE(
      parse_good(completion_line("a", R"("x")", R"(,"logprobs":2)")).sampling.prompt_logprobs);
}

TEST(RequestParser, ARepeatedKeyIsNamedWithTheRecord) {
  std::string custom_id;
  const RequestParser parser(parser_options());
  const ParsedRecord parsed = parser.parse_line(chat_line("r7", R"(,"n":1,"n":2)"), custom_id);
  const auto& fault = std::get<RecordFault>(parsed);
  EXPECT_EQ(fault.message.find("the key \"n\" is there twice in one object, again at column "), 0U)
      << fault.message;
  EXPECT_EQ(fault.param, "n");
  EXPECT_EQ(custom_id, "r7");
  parser.parse_line(R"({"custom_id":"a","custom_id":"b"})", custom_id);
  EXPECT_EQ(custom_id, "") << "neither of the two";
}

TEST(RequestParser, IntegersMayBeWrittenAsFloats) {
  const Record chat = parse_good(chat_line(
      "a", R"(,"max_tokens":4.0,"seed":-9007199254740992.0,"n":2e0,"stop_token_ids":[65.0])"));
  EXPECT_EQ(chat.max_tokens, 4);
  EXPECT_EQ(chat.sampling.seed, static_cast<std::uint64_t>(-(std::int64_t{1} << 53)));
  EXPECT_EQ(chat.sampling.num_choices, 2);
  EXPECT_EQ(chat.sampling.stop_ids.back(), 65);
  const Record raw = parse_good(completion_line("a", "[[1.0,2],[3]]"));
  EXPECT_EQ(std::get<std::vector<std::int32_t>>(raw.prompts.at(0)),
            (std::vector<std::int32_t>{1, 2}));
}

TEST(RequestParser, NullMeansAbsent) {
  const Record record = parse_good(
      chat_line("a", R"(,"max_tokens":null,"stop":null,"tools":null,"seed":null,"n":null)"));
  EXPECT_FALSE(record.max_tokens.has_value());
  EXPECT_EQ(record.sampling.num_choices, 1);
}

TEST(RequestParser, HarmlessFormsOfUnsupportedFieldsPass) {
  parse_good(chat_line(
      "a",
      R"(,"tools":[],"tool_choice":"none","response_format":{"type":"text"},"stream":false,"user":"u","best_of":1)"));
}

TEST(RequestParser, DefaultSeedDependsOnJobSeedAndIdAlone) {
  const auto seed_of = [](const std::string& id, std::uint64_t job_seed) {
    ParserOptions options = parser_options();
    options.defaults.seed = job_seed;
    return parse_good(chat_line(id), options).sampling.seed;
  };
  EXPECT_EQ(seed_of("a", 0), seed_of("a", 0));
  EXPECT_NE(seed_of("a", 0), seed_of("b", 0));
  EXPECT_NE(seed_of("a", 0), seed_of("a", 1));
  std::set<std::uint64_t> seeds;
  for (int i = 0; i < 1000; ++i) seeds.insert(seed_of("r-" + std::to_string(i), 0));
  EXPECT_EQ(seeds.size(), 1000U);
}

struct BadLine {
  std::string line;
  std::string code;
  std::string param;
};

TEST(RequestParser, RefusesEachFaultByName) {
  const std::string open =
      R"({"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":)";
  const std::vector<BadLine> cases = {
      {"{", "invalid_json", ""},
      {"[1]", "invalid_json", ""},
      {"{\"a\":\"\xff\"}", "invalid_json", ""},
      {R"({"a":"\ud83d"})", "invalid_json", ""},
      {R"({"a":1e999})", "invalid_json", ""},
      {std::string("{\"a\":\"x\0y\"}", 11), "invalid_json", ""},
      {"{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}", "invalid_json", ""},
      {"{\"a\":" + std::string(1000000, '['), "invalid_json", ""},
      {R"({"method":"POST"})", "missing_field", "custom_id"},
      {R"({"custom_id":7})", "invalid_type", "custom_id"},
      {R"({"custom_id":""})", "invalid_value", "custom_id"},
      {R"({"custom_id":"a","method":"GET"})", "invalid_value", "method"},
      {R"({"custom_id":"a","method":"POST"})", "missing_field", "url"},
      {R"({"custom_id":"a","url":"/v1/embeddings"})", "unsupported_endpoint", "url"},
      {R"({"custom_id":"a","url":"/v1/completions"})", "missing_field", "body"},
      {R"({"custom_id":"a","url":"/v1/completions","body":[]})", "invalid_type", "body"},
      {completion_line("a", "7"), "invalid_type", "prompt"},
      {completion_line("a", "[]"), "invalid_value", "prompt"},
      {completion_line("a", R"(["x",1])"), "invalid_type", "prompt.1"},
      {completion_line("a", "[1,-1]"), "invalid_value", "prompt.1"},
      {completion_line("a", "[1,260]"), "invalid_value", "prompt.1"},
      {completion_line("a", "[1,2.5]"), "invalid_type", "prompt.1"},
      {completion_line("a", "null"), "missing_field", "prompt"},
      {open + "{}}", "missing_field", "messages"},
      {open + R"({"messages":[]}})", "invalid_value", "messages"},
      {open + R"({"messages":{}}})", "invalid_type", "messages"},
      {open + R"({"messages":[7]}})", "invalid_type", "messages.0"},
      {open + R"({"messages":[{"content":"x"}]}})", "missing_field", "messages.0.role"},
      {open + R"({"messages":[{"role":"boss","content":"x"}]}})", "invalid_value",
       "messages.0.role"},
      {open + R"({"messages":[{"role":"user"}]}})", "missing_field", "messages.0.content"},
      {open + R"({"messages":[{"role":"user","content":7}]}})", "invalid_type",
       "messages.0.content"},
      {open +
           R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}})",
       "unsupported_parameter", "messages.0.content.0"},
      {chat_line("a", R"(,"stream":true)"), "unsupported_parameter", "stream"},
      {chat_line("a", R"(,"stream":"True")"), "invalid_type", "stream"},
      {chat_line("a", R"(,"functions":[{"name":"f"}])"), "unsupported_parameter", "functions"},
      {chat_line("a", R"(,"seed":1,"seed":2)"), "invalid_json", "seed"},
      {chat_line("a", R"(,"logit_bias":{"65":1,"66":1,"65":2})"), "invalid_json", "65"},
      {R"({"custom_id":"a","custom_id":"a"})", "invalid_json", "custom_id"},
      {chat_line("a", R"(,"response_format":{"type":"json_object"})"), "unsupported_parameter",
       "response_format"},
      {chat_line("a", R"(,"echo":true)"), "unsupported_parameter", "echo"},
      {completion_line("a", R"("x")", R"(,"suffix":"y")"), "unsupported_parameter", "suffix"},
      {completion_line("a", R"("x")", R"(,"best_of":4)"), "unsupported_parameter", "best_of"},
      {chat_line("a", R"(,"max_tokens":-1)"), "invalid_value", "max_tokens"},
      {chat_line("a", R"(,"max_tokens":1.5)"), "invalid_type", "max_tokens"},
      {chat_line("a", R"(,"max_tokens":"8")"), "invalid_type", "max_tokens"},
      {chat_line("a", R"(,"max_tokens":99999999999999999999)"), "invalid_value", "max_tokens"},
      {chat_line("a", R"(,"max_tokens":4.5)"), "invalid_type", "max_tokens"},
      {chat_line("a", R"(,"seed":1e18)"), "invalid_value", "seed"},
      {chat_line("a", R"(,"stop_token_ids":[2.5])"), "invalid_type", "stop_token_ids.0"},
      {completion_line("a", "[-1.0]"), "invalid_value", "prompt.0"},
      {chat_line("a", R"(,"max_tokens":18446744073709551615)"), "invalid_value", "max_tokens"},
      {chat_line("a", R"(,"temperature":-0.1)"), "invalid_value", "temperature"},
      {chat_line("a", R"(,"temperature":"hot")"), "invalid_type", "temperature"},
      {chat_line("a", R"(,"top_p":0)"), "invalid_value", "top_p"},
      {chat_line("a", R"(,"top_p":1.1)"), "invalid_value", "top_p"},
      {chat_line("a", R"(,"top_k":-2)"), "invalid_value", "top_k"},
      {chat_line("a", R"(,"n":0)"), "invalid_value", "n"},
      {chat_line("a", R"(,"n":true)"), "invalid_type", "n"},
      {chat_line("a", R"(,"stop":[""])"), "invalid_value", "stop"},
      {chat_line("a", R"(,"stop":7)"), "invalid_type", "stop"},
      {chat_line("a", R"(,"stop":[7])"), "invalid_type", "stop"},
      {chat_line("a", R"(,"stop_token_ids":[260])"), "invalid_value", "stop_token_ids.0"},
      {chat_line("a", R"(,"logit_bias":{"x":1})"), "invalid_value", "logit_bias"},
      {chat_line("a", R"(,"logit_bias":{"260":1})"), "invalid_value", "logit_bias"},
      {chat_line("a", R"(,"logit_bias":{"1":101})"), "invalid_value", "logit_bias"},
      {chat_line("a", R"(,"logit_bias":{"01":1,"1":2})"), "invalid_value", "logit_bias"},
      {chat_line("a", R"(,"top_logprobs":2)"), "invalid_value", "top_logprobs"},
      {chat_line("a", R"(,"logprobs":true,"top_logprobs":21)"), "invalid_value", "top_logprobs"},
      {chat_line("a", R"(,"logprobs":5)"), "invalid_type", "logprobs"},
      {completion_line("a", R"("x")", R"(,"logprobs":true)"), "invalid_type", "logprobs"},
      {chat_line("a", R"(,"presence_penalty":3)"), "invalid_value", "presence_penalty"},
      {chat_line("a", R"(,"repetition_penalty":0)"), "invalid_value", "repetition_penalty"},
      {chat_line("a", R"(,"seed":1.5)"), "invalid_type", "seed"},
      {chat_line("a", R"(,"min_tokens":9,"max_tokens":3)"), "invalid_value", "min_tokens"},
      {chat_line("a", R"(,"continue_final_message":true)"), "invalid_value",
       "continue_final_message"},
  };
  for (const BadLine& bad : cases) {
    const RecordFault fault = parse_bad(bad.line);
    EXPECT_EQ(fault.code, bad.code) << bad.line.substr(0, 200) << "\n" << fault.message;
    EXPECT_EQ(fault.param, bad.param) << bad.line.substr(0, 200) << "\n" << fault.message;
    EXPECT_EQ(fault.status, 400);
    EXPECT_LT(fault.message.size(), 400U);
  }
}

TEST(RequestParser, NamesEveryFaultOfARecord) {
  const auto expect_all = [](const std::string& line, const std::vector<std::string>& words) {
    const RecordFault fault = parse_bad(line);
    for (const std::string& word : words) {
      EXPECT_NE(fault.message.find(word), std::string::npos) << word << "\nis not in\n"
                                                             << fault.message;
    }
    // And no others.
    std::size_t num_faults = 1;
    for (auto at = fault.message.find("; "); at != std::string::npos;
         at = fault.message.find("; ", at + 1)) {
      if (fault.message.compare(at, 12, "; supported ") != 0) ++num_faults;
    }
    EXPECT_EQ(num_faults, words.size()) << fault.message;
  };
  expect_all(
      completion_line(
          "a", R"(["x",7,"y",null])",
          R"(,"max_tokens":-1,"temperature":9999,"n":0,"min_tokens":"3","guided_json":{"a":1},)"
          R"("stop":["",5],"logit_bias":{"x":1,"1":"big"},"stop_token_ids":[1,999,"2"])"),
      {"guided_json is not supported", "n must be between 1 and 128, found 0",
       "temperature must be between 0 and 100, found 9999",
       "logit_bias.1 must be a number between -100 and 100, found a string",
       "logit_bias: \"x\" is not a token id", "stop: a stop string has 1 to",
       "stop.1 must be a string, found an integer",
       "stop_token_ids.1: token id 999 is not in the vocabulary",
       "stop_token_ids.2 must be a token id, found a string",
       "min_tokens must be an integer, found a string", "max_tokens must be between 0 and",
       "prompt.1 must be a string as the first prompt is, found an integer",
       "prompt.3 must be a string as the first prompt is, found null"});
  expect_all(R"({"custom_id":"","method":"GET","url":"/v1/embeddings","body":[]})",
             {"custom_id must have 1 to", "method must be \"POST\"", "url \"/v1/embeddings\"",
              "body must be an object"});
  expect_all(
      R"({"custom_id":"a","url":"/v1/chat/completions","body":{"messages":[7,{"role":"usr","content":5},)"
      R"({"content":[{"type":"text"},{"type":"vidio"},8]},{"role":"user"},{"role":"user","content":"x","name":3}],)"
      R"("tools":[{"type":"function"},{"function":{"name":5}}],"chat_template_kwargs":{"date":1,"other":2},)"
      R"("top_logprobs":2}})",
      {"messages.0 must be an object", "messages.1.role must be system",
       "messages.1.content must be", "messages.2.role is missing",
       "messages.2.content.0.text is missing", "messages.2.content.1.type must be",
       "messages.2.content.2 must be an object", "messages.3.content is missing",
       "messages.4.name must be a string", "tools.0.function is missing",
       "tools.1.function.name must be a string", "chat_template_kwargs.date is not supported",
       "chat_template_kwargs.other is not supported", "top_logprobs needs logprobs: true"});
}

TEST(RequestParser, ManyFaultsOfARecordAreCounted) {
  std::string ids = "[300";
  for (int i = 0; i < 10000; ++i) ids += ",300";
  const RecordFault fault = parse_bad(completion_line("a", ids + "]"));
  EXPECT_NE(fault.message.find("; and 9981 more faults"), std::string::npos) << fault.message;
  EXPECT_LT(fault.message.size(), 3000U);
}

TEST(RequestParser, OneFaultDoesNotLookLikeAnother) {
  EXPECT_EQ(parse_bad(chat_line("a", R"(,"max_tokens":"9","min_tokens":40)")).message,
            "max_tokens must be an integer, found a string");
  EXPECT_EQ(parse_bad(chat_line("a", R"(,"logprobs":1,"top_logprobs":3)")).message,
            "logprobs must be true or false, found an integer");
  EXPECT_EQ(parse_bad(chat_line("a", R"(,"n":"2","best_of":1)")).message,
            "n must be an integer, found a string");
}

TEST(RequestParser, SaysWhereUtf8IsBroken) {
  EXPECT_NE(parse_bad("{\"a\":\"xy\xff\"}").message.find("byte 8"), std::string::npos);
}

TEST(RequestParser, KeepsTheIdOfAFaultyLine) {
  std::string custom_id = "old";
  RequestParser(parser_options()).parse_line(chat_line("keep", R"(,"n":0)"), custom_id);
  EXPECT_EQ(custom_id, "keep");
  RequestParser(parser_options()).parse_line("{", custom_id);
  EXPECT_EQ(custom_id, "");
}

TEST(RequestParser, ComparesTheModelOnlyWhenANameIsRequired) {
  const std::string line = chat_line("a", R"(,"model":"other")");
  parse_good(line);
  ParserOptions options = parser_options();
  options.require_model_name = true;
  const RecordFault fault = parse_bad(line, options);
  EXPECT_EQ(fault.code, "model_not_found");
  EXPECT_EQ(fault.status, 404);
  parse_good(chat_line("a", R"(,"model":"tiny")"), options);
}

TEST(RequestParser, UnknownFieldsInsideMessagesWarnOrFail) {
  const std::string call =
      R"({"role":"assistant","tool_calls":[{"id":"c","type":"function","x":1,"function":{"name":"f","arguments":"{}","y":2}}]})";
  const std::string start =
      R"({"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"messages":[)";
  const std::string user =
      R"({"role":"user","content":[{"type":"text","text":"Hi","cache_control":1}],"nmae":"x"})";
  const std::string line = start + user + "," + user + "," + call + "]}}";
  std::vector<std::string> names;
  std::string custom_id;
  const RequestParser lenient(parser_options(),
                              [&names](const std::string& name) { names.push_back(name); });
  EXPECT_TRUE(std::holds_alternative<Record>(lenient.parse_line(line, custom_id)));
  EXPECT_EQ(names, (std::vector<std::string>{
                       "messages.*.nmae", "messages.*.content.*.cache_control", "messages.*.nmae",
                       "messages.*.content.*.cache_control", "messages.*.tool_calls.*.x",
                       "messages.*.tool_calls.*.function.y"}));
  ParserOptions strict = parser_options();
  strict.unknown_fields = UnknownFields::kRefuse;
  EXPECT_EQ(parse_bad(line, strict).param, "messages.0.nmae");
  const std::string answer =  // as servers give it back
      R"({"role":"assistant","content":"x","name":"n","refusal":null,"audio":null})";
  const ParsedRecord parsed = RequestParser(strict).parse_line(start + answer + "]}}", custom_id);
  EXPECT_TRUE(std::holds_alternative<Record>(parsed));
}

TEST(RequestParser, UnknownFieldsWarnOrFail) {
  std::vector<std::string> names;
  std::string custom_id;
  const std::string line = chat_line("a", R"(,"temprature":1)");
  const RequestParser lenient(parser_options(),
                              [&names](const std::string& name) { names.push_back(name); });
  EXPECT_TRUE(std::holds_alternative<Record>(lenient.parse_line(line, custom_id)));
  EXPECT_EQ(names, (std::vector<std::string>{"temprature"}));
  ParserOptions strict = parser_options();
  strict.unknown_fields = UnknownFields::kRefuse;
  const RecordFault fault = parse_bad(line, strict);
  EXPECT_EQ(fault.code, "unknown_parameter");
  EXPECT_EQ(fault.param, "temprature");
  EXPECT_EQ(parse_bad(chat_line("a", R"(,"topp":1,"temprature":1)"), strict).message,
            "temprature is not a known field; topp is not a known field");
}

ParserOptions vision_options() {
  ParserOptions options = parser_options();
  options.reads_images = true;
  return options;
}

/// A chat whose user message has these parts.
std::string parts_line(const std::string& parts, const std::string& role = "user") {
  return R"({"custom_id":"a","url":"/v1/chat/completions","body":{"messages":[{"role":")" + role +
         R"(","content":[)" + parts + "]}]}}";
}

TEST(RequestParser, KeepsImagesWhereTheirPartsStand) {
  std::string id;
  const auto record = std::get<Record>(
      RequestParser(vision_options())
          .parse_line(
              parts_line(
                  R"({"type":"text","text":"ab"},{"type":"image_url","image_url":{"url":"x.png"}},)"
                  R"({"type":"image_url","image_url":"data:,"},{"type":"text","text":"c"},)"
                  R"({"type":"image_url","image_url":{"url":"y","detail":"high"}},)"
                  R"({"type":"image","image":"z"},{"type":"image","url":"w"})"),
              id));
  EXPECT_EQ(record.messages[0].content, "abc");
  EXPECT_EQ(record.messages[0].image_offsets, (std::vector<std::size_t>{2, 2, 3, 3, 3}));
  ASSERT_EQ(record.images.size(), 5U);
  EXPECT_EQ(record.images[3].url, "z");
  EXPECT_EQ(record.images[3].param, "messages.0.content.5.image");
  EXPECT_EQ(record.images[4].url, "w");
  EXPECT_EQ(record.images[0].url, "x.png");
  EXPECT_EQ(record.images[0].param, "messages.0.content.1.image_url");
  EXPECT_EQ(record.images[1].url, "data:,");
  EXPECT_EQ(record.images[2].param, "messages.0.content.4.image_url");
}

TEST(RequestParser, JoinsTextPartsThatFollowEachOther) {
  const std::string line = parts_line(
      R"({"type":"text","text":"a"},{"type":"text","text":"b"},{"type":"image_url","image_url":"x"},)"
      R"({"type":"text","text":"c"},{"type":"text","text":""},{"type":"text","text":"d"})");
  const auto parse = [&](const std::string& separator) {
    ParserOptions options = vision_options();
    options.text_part_separator = separator;
    std::string id;
    return std::get<Record>(RequestParser(options).parse_line(line, id)).messages.at(0);
  };
  EXPECT_EQ(parse("\n").content, "a\nbc\n\nd");
  EXPECT_EQ(parse("\n").image_offsets, std::vector<std::size_t>{3});
  EXPECT_EQ(parse("").content, "abcd");
}

TEST(RequestParser, NamesFaultsOfImageParts) {
  const std::string path = "messages.0.content.0";
  const std::vector<std::array<std::string, 3>> cases = {
      {parts_line(R"({"type":"image"})"), "missing_field", path + ".url"},
      {parts_line(R"({"type":"image","image":7})"), "invalid_type", path + ".image"},
      {parts_line(R"({"type":"image","image":"x"})", "assistant"), "invalid_value", path},
      {parts_line(R"({"type":"image_url"})"), "missing_field", path + ".image_url"},
      {parts_line(R"({"type":"image_url","image_url":7})"), "invalid_type", path + ".image_url"},
      {parts_line(R"({"type":"image_url","image_url":{}})"), "missing_field",
       path + ".image_url.url"},
      {parts_line(R"({"type":"image_url","image_url":{"url":"x","detail":"huge"}})"),
       "invalid_value", path + ".image_url.detail"},
      {parts_line(R"({"type":"input_image","image_url":"x"})"), "invalid_value", path + ".type"},
      {parts_line(R"({"type":"image_url","image_url":"x"})", "assistant"), "invalid_value", path},
      {parts_line(R"({"type":"image_url","image_url":"x"})", "system"), "invalid_value", path},
      {completion_line("a", R"("x")", R"(,"multi_modal_data":{"image":"x"})"), "invalid_value",
       "prompt"},
      {completion_line("a", R"("x")", R"(,"multi_modal_data":{"video":"x"})"), "missing_field",
       "multi_modal_data.image"},
      {completion_line("a", R"("<|image|>")", R"(,"multi_modal_data":{"image":"x","audio":"y"})"),
       "unsupported_parameter", "multi_modal_data.audio"},
      {completion_line("a", R"("<|image|>")", R"(,"multi_modal_data":{"image":[7]})"),
       "invalid_type", "multi_modal_data.image.0"},
      {completion_line("a", R"("<|image|>")", R"(,"multi_modal_data":{"image":[]})"),
       "invalid_value", "prompt"},
      {completion_line("a", R"("<|image|>")", R"(,"multi_modal_data":"x")"), "invalid_type",
       "multi_modal_data"},
      {completion_line("a", R"("x")", R"(,"images":["x"])"), "unsupported_parameter", "images"},
  };
  for (const auto& [line, code, param] : cases) {
    std::string id;
    const auto parsed = RequestParser(vision_options()).parse_line(line, id);
    ASSERT_TRUE(std::holds_alternative<RecordFault>(parsed)) << line;
    EXPECT_EQ(std::get<RecordFault>(parsed).code, code) << line;
    EXPECT_EQ(std::get<RecordFault>(parsed).param, param) << line;
  }
}

TEST(RequestParser, LimitsTheImagesOfARecord) {
  ParserOptions options = vision_options();
  options.max_images = 3;
  const RequestParser parser(options);
  const std::string part = R"({"type":"image_url","image_url":"x"})";
  const auto line = [&](int first, int second) {
    const auto message = [&](int images) {
      std::string parts = R"({"type":"text","text":"t"})";
      for (int i = 0; i < images; ++i) parts += "," + part;
      return R"({"role":"user","content":[)" + parts + "]}";
    };
    return R"({"custom_id":"a","url":"/v1/chat/completions","body":{"messages":[)" +
           message(first) + "," + message(second) + "]}}";
  };
  std::string id;
  EXPECT_EQ(std::get<Record>(parser.parse_line(line(1, 2), id)).images.size(), 3U);
  // Over all messages of the record; the field is the first image too many.
  const auto fault = std::get<RecordFault>(parser.parse_line(line(2, 3), id));
  EXPECT_EQ(fault.code, "too_many_images");
  EXPECT_EQ(fault.param, "messages.1.content.2");
  EXPECT_NE(fault.message.find("image 4 of the record, but a record may have 3 (--max-images)"),
            std::string::npos)
      << fault.message;
  const PlainPrompt three{"t:1", Endpoint::kChat, "", "Hi", {"a", "b", "c"}};
  EXPECT_TRUE(std::holds_alternative<Record>(parser.parse_plain(three)));
  PlainPrompt four = three;
  four.images.push_back("d");
  EXPECT_EQ(std::get<RecordFault>(parser.parse_plain(four)).code, "too_many_images");
}

TEST(RequestParser, PlainPromptsShowImagesFirst) {
  const RequestParser parser(vision_options());
  const auto record =
      std::get<Record>(parser.parse_plain({"t:1", Endpoint::kChat, "", "Hi", {"a.png", "b"}}));
  EXPECT_EQ(record.messages.back().image_offsets, (std::vector<std::size_t>{0, 0}));
  EXPECT_EQ(record.images.at(1).url, "b");
  const auto other =
      std::get<Record>(parser.parse_plain({"t:1", Endpoint::kChat, "", "Hi", {"a.png", "c"}}));
  EXPECT_NE(record.content_hash, other.content_hash);
  const auto raw = std::get<Record>(
      parser.parse_plain({"t:1", Endpoint::kCompletion, "", "Hi", {"a.png", "b"}}));
  EXPECT_EQ(raw.image_offsets, (std::vector<std::size_t>{0, 0}));
  // Unless the text has places for them.
  const auto marked = std::get<Record>(parser.parse_plain(
      {"t:1", Endpoint::kCompletion, "", "Hi <|image|>there<|image|>", {"a.png", "b"}}));
  EXPECT_EQ(marked.image_offsets, (std::vector<std::size_t>{3, 8}));
  EXPECT_EQ(std::get<std::string>(marked.prompts.front()), "Hi there");
  const auto mismatch = std::get<RecordFault>(
      parser.parse_plain({"t:1", Endpoint::kCompletion, "", "<|image|>", {"a.png", "b"}}));
  EXPECT_NE(mismatch.message.find("1 places for images (<|image|>) and 2 images"),
            std::string::npos);
  const auto text_model = std::get<RecordFault>(
      RequestParser(parser_options()).parse_plain({"t:1", Endpoint::kChat, "", "Hi", {"a.png"}}));
  EXPECT_EQ(text_model.message, "model tiny has no vision: the prompt has an image");
}

TEST(RequestParser, PlainPromptsTakeTheDefaults) {
  ParserOptions options = parser_options();
  options.defaults.temperature = 0.25;
  options.defaults.stop_strings = {"END"};
  const RequestParser parser(options);
  const auto chat = std::get<Record>(parser.parse_plain({"t:1", Endpoint::kChat, "Be kind", "Hi"}));
  ASSERT_EQ(chat.messages.size(), 2U);
  EXPECT_EQ(chat.messages[0].role, "system");
  EXPECT_EQ(chat.sampling.temperature, 0.25);
  EXPECT_EQ(chat.sampling.stop_strings, (std::vector<std::string>{"END"}));
  const auto raw = std::get<Record>(parser.parse_plain({"t:1", Endpoint::kCompletion, "", "Hi"}));
  EXPECT_EQ(raw.max_tokens, 16);
  EXPECT_TRUE(std::holds_alternative<RecordFault>(
      parser.parse_plain({"t:1", Endpoint::kChat, "", "\xff"})));
  EXPECT_TRUE(std::holds_alternative<RecordFault>(
      parser.parse_plain({"t:1", Endpoint::kChat, "", std::string("a\0b", 3)})));
}

}  // namespace
}  // namespace caravan::batch
