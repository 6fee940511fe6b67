// Tools, tool calls and template arguments of chat requests.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "unit/batch/parser_rig.h"

namespace caravan::batch {
namespace {

using test::chat_line;
using test::completion_line;

ParsedRecord parse(const std::string& line) {
  std::string custom_id;
  return RequestParser(test::parser_options()).parse_line(line, custom_id);
}

Record parse_good(const std::string& line) {
  const ParsedRecord parsed = parse(line);
  if (const auto* fault = std::get_if<RecordFault>(&parsed)) {
    ADD_FAILURE() << line << "\n" << fault->code << ": " << fault->message;
    return {};
  }
  return std::get<Record>(parsed);
}

std::string messages_line(const std::string& messages) {
  return R"({"custom_id":"a","url":"/v1/chat/completions","body":{"messages":)" + messages + "}}";
}

constexpr const char* kTools =
    R"(,"tools":[{"type":"function","function":{"name":"zoo","parameters":{"b":1,"a":2}}}])";

TEST(ToolFields, ToolsKeepTheOrderOfTheirKeys) {
  const std::vector<std::string> expected = {
      R"({"type":"function","function":{"name":"zoo","parameters":{"b":1,"a":2}}})"};
  EXPECT_EQ(parse_good(chat_line("a", kTools)).chat_options.tools, expected);
  const std::string automatic = std::string(kTools) + R"(,"tool_choice":"auto")";
  EXPECT_EQ(parse_good(chat_line("a", automatic)).chat_options.tools, expected);
}

TEST(ToolFields, ToolsThatMustNotBeCalledAreLeftOut) {
  const std::string none = std::string(kTools) + R"(,"tool_choice":"none")";
  EXPECT_TRUE(parse_good(chat_line("a", none)).chat_options.tools.empty());
  EXPECT_TRUE(parse_good(chat_line("a", R"(,"tools":[])")).chat_options.tools.empty());
}

TEST(ToolFields, MessagesMayCallAndAnswer) {
  const Record record = parse_good(messages_line(
      R"([{"role":"user","content":"x"},
          {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"zoo","arguments":"{\"b\": 1}"}}]},
          {"role":"tool","tool_call_id":"c1","content":"7"},{"role":"ipython","content":"8"}])"));
  ASSERT_EQ(record.messages.size(), 4U);
  EXPECT_EQ(record.messages[1].tool_calls,
            (std::vector<text::ChatToolCall>{{"zoo", "{\"b\": 1}"}}));
  EXPECT_EQ(record.messages[2].role, "tool");
  EXPECT_EQ(record.messages[2].content, "7");
  EXPECT_EQ(record.messages[3].role, "ipython");
}

TEST(ToolFields, ArgumentsMayBeAnObjectAndKeepTheirOrder) {
  const Record record = parse_good(messages_line(
      R"([{"role":"user","content":[{"type":"text","text":"x"}]},
          {"role":"assistant","tool_calls":[{"function":{"name":"zoo","arguments":{"b":1,"a":{"d":2,"c":3}}}}]}])"));
  EXPECT_EQ(record.messages.at(1).tool_calls,
            (std::vector<text::ChatToolCall>{{"zoo", R"({"b":1,"a":{"d":2,"c":3}})"}}));
}

TEST(ToolFields, TemplateArguments) {
  const text::ChatOptions options =
      parse_good(
          chat_line(
              "a",
              R"(,"chat_template_kwargs":{"date_string":"1 May 2025","tools_in_user_message":false,"builtin_tools":["brave_search"]})"))
          .chat_options;
  EXPECT_EQ(options.date, "1 May 2025");
  EXPECT_FALSE(options.tools_in_user_message);
  EXPECT_EQ(options.builtin_tools, (std::vector<std::string>{"brave_search"}));
  EXPECT_TRUE(parse_good(chat_line("a")).chat_options.tools_in_user_message);
}

TEST(ToolFields, FaultsNameTheField) {
  struct Case {
    std::string line;
    std::string code;
    std::string param;
  };
  const std::string large = std::string(300 * 1024, 'x');
  const std::vector<Case> cases = {
      {chat_line("a", R"(,"tools":{})"), "invalid_type", "tools"},
      {chat_line("a", R"(,"tools":[7])"), "invalid_type", "tools.0"},
      {chat_line("a", R"(,"tools":[{"type":"retrieval"}])"), "unsupported_parameter",
       "tools.0.type"},
      {chat_line("a", R"(,"tools":[{"type":"function"}])"), "missing_field", "tools.0.function"},
      {chat_line("a", R"(,"tools":[{"function":{}}])"), "missing_field", "tools.0.function.name"},
      {chat_line("a", R"(,"tools":[{"function":{"name":"f","description":")" + large + R"("}}])"),
       "invalid_value", "tools"},
      {chat_line("a", std::string(kTools) + R"(,"tool_choice":"required")"),
       "unsupported_parameter", "tool_choice"},
      {completion_line("a", R"("x")", kTools), "unsupported_parameter", "tools"},
      {completion_line("a", R"("x")", R"(,"chat_template_kwargs":{"date_string":"x"})"),
       "unsupported_parameter", "chat_template_kwargs"},
      {chat_line("a", R"(,"chat_template_kwargs":{"enable_thinking":true})"),
       "unsupported_parameter", "chat_template_kwargs.enable_thinking"},
      {chat_line("a", R"(,"chat_template_kwargs":{"builtin_tools":"x"})"), "invalid_type",
       "chat_template_kwargs.builtin_tools"},
      {chat_line("a", R"(,"chat_template_kwargs":{"date_string":7})"), "invalid_type",
       "chat_template_kwargs.date_string"},
      {messages_line(R"([{"role":"assistant","tool_calls":[{"id":"1"}]}])"), "missing_field",
       "messages.0.tool_calls.0.function"},
      {messages_line(
           R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":7}}]}])"),
       "invalid_type", "messages.0.tool_calls.0.function.arguments"},
      {messages_line(R"([{"role":"assistant","tool_calls":[]}])"), "missing_field",
       "messages.0.content"},
      {messages_line(R"([{"role":"assistant","content":"x","function_call":{"name":"f"}}])"),
       "unsupported_parameter", "messages.0.function_call"},
  };
  for (const Case& expected : cases) {
    const ParsedRecord parsed = parse(expected.line);
    const auto* fault = std::get_if<RecordFault>(&parsed);
    ASSERT_NE(fault, nullptr) << expected.line.substr(0, 200);
    EXPECT_EQ(fault->code, expected.code) << fault->message;
    EXPECT_EQ(fault->param, expected.param) << fault->message;
  }
}

}  // namespace
}  // namespace caravan::batch
