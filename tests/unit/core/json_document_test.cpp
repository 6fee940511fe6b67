#include "caravan/core/json_document.h"

#include <gtest/gtest.h>

#include <string>

namespace caravan {
namespace {

std::string repeated(const std::string& piece, std::size_t times) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i) text += piece;
  return text;
}

/// What parse_json says of `text`; "" if it takes it.
std::string fault(const std::string& text) {
  std::string ordered;
  try {
    parse_json<OrderedJson>(text, "a.json");
  } catch (const JsonFault& error) {
    ordered = error.what();
  }
  try {
    parse_json(text, "a.json");
  } catch (const JsonFault& error) {
    EXPECT_EQ(error.what(), ordered);
    return error.what();
  }
  EXPECT_EQ(ordered, "");
  return "";
}

TEST(ParseJson, GivesTheSameTreeAsTheLibrary) {
  for (const char* text :
       {"{}", "[]", "0", "null", "true", "\"\"", " [1, -2, 3.5e2, 18446744073709551615, 1e300]\n",
        R"({"b": {"c": [[], {}, "x", null, [false]]}, "a": "\u00e9\n\"", "": {"": 0}})",
        "\xef\xbb\xbf[1]"}) {
    EXPECT_EQ(parse_json(text, "a.json"), Json::parse(text)) << text;
    EXPECT_EQ(parse_json<OrderedJson>(text, "a.json"), OrderedJson::parse(text)) << text;
    EXPECT_EQ(parse_json<OrderedJson>(text, "a.json").dump(), OrderedJson::parse(text).dump());
  }
}

TEST(ParseJson, NamesLineAndColumnOfASyntaxError) {
  EXPECT_EQ(
      fault("{\n  \"a\": 1,\n  }")
          .find(
              "a.json: not valid JSON at line 3, column 3: syntax error while parsing object key"),
      0U)
      << fault("{\n  \"a\": 1,\n  }");
  EXPECT_EQ(fault("[1, x]").find("a.json: not valid JSON at column 5: "), 0U) << fault("[1, x]");
  for (const char* text :
       {"", " ", "{", "[1", "[1] 2", "\"a", "nul", "[\"\xff\"]", "1e999", "{1:2}"})
    EXPECT_NE(fault(text).find("not valid JSON at column"), std::string::npos) << fault(text);
}

TEST(ParseJson, KeepsMessagesShortAndPrintable) {
  for (const std::string& text :
       {"[\"" + repeated("\xc3\xa9", 100000), "[\"" + std::string(100000, '\x01'),
        "[" + std::string(100000, '9') + "e9999]", "{\"" + std::string(100000, 'k') + "\xff\": 1}",
        std::string("[\"a; expected \xff")}) {
    const std::string message = fault(text);
    EXPECT_LT(message.size(), 400U) << message;
    for (const char c : message) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << message;
  }
}

TEST(ParseJson, RefusesDeepNestingWithoutRecursion) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(fault(nested(100)), "");
  EXPECT_EQ(fault(nested(101)),
            "a.json: lists and objects are nested more than 100 deep at column 101");
  EXPECT_NE(fault(nested(1'000'000)).find("nested more than 100 deep"), std::string::npos);
  EXPECT_NE(fault(repeated("{\"a\":", 200000)).find("nested more than 100 deep"),
            std::string::npos);
}

TEST(ParseJson, RefusesAKeyThatIsThereTwiceAndNamesThePlace) {
  EXPECT_EQ(fault("{\n\"a\": 1,\n  \"b\": {\"a\": 2},\n  \"a\": 3}"),
            "a.json: the key \"a\" is there twice in one object, again at line 4, column 3: remove "
            "the one that is wrong");
  // The same key in another spelling, with quotes and backslashes in it.
  EXPECT_NE(fault(R"({"\"\\": 1, "\u0022\\": 2})").find("again at column 13"), std::string::npos)
      << fault(R"({"\"\\": 1, "\u0022\\": 2})");
  EXPECT_NE(fault(R"({"": 1, "": 2})").find("again at column 9"), std::string::npos);
  EXPECT_EQ(fault(R"([{"a": 1}, {"a": 2}, {"a": {"a": 3}}])"), "");
}

TEST(ParseJson, LimitsTheMemoryOfTheTree) {
  EXPECT_EQ(fault("[" + repeated("{},", 10000) + "{}]"), "");
  const std::string message = fault("[" + repeated("{},", 1'000'000) + "{}]");
  EXPECT_NE(message.find("holds more values at column"), std::string::npos) << message;
  // What files are made of: pairs of short texts, a vocabulary, token ids.
  std::string vocabulary = "{";
  for (int i = 0; i < 100000; ++i) vocabulary += fmt::format("\"\u0120{}\":{},", i, i);
  EXPECT_EQ(fault(vocabulary + "\"x\":0}"), "");
  EXPECT_EQ(fault("[" + repeated("[\"in\",\"form\"],", 100000) + "0]"), "");
  EXPECT_EQ(fault("[" + repeated("1,", 1'000'000) + "1]"), "");
}

TEST(ParseJson, ReadsLongObjectsInLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200000; ++i) text += fmt::format("\"{}\":0,", i);
  const auto tree = parse_json<OrderedJson>(text + "\"last\":1}", "a.json");
  EXPECT_EQ(tree.size(), 200001U);  // 2e10 comparisons of keys if each were compared with all
  EXPECT_EQ(tree.begin().key(), "0");
}

TEST(ParseJsonNotingRepeats, KeepsTheFirstValueAndGoesOn) {
  const NotedJson noted = parse_json_noting_repeats(
      R"({"a": 1, "b": 2, "b": {"b": [1], "c": 0, "c": {"d": 1, "d": [[]]}}, "a": [2], "e": 3})",
      "a.json");
  EXPECT_EQ(noted.value, Json({{"a", 1}, {"b", 2}, {"e", 3}}));
  EXPECT_EQ(noted.repeated_key, "b");
  EXPECT_EQ(noted.repeated_at, "column 18");
  EXPECT_EQ(parse_json_noting_repeats("{\"a\": 1}", "a.json").repeated_at, "");
  EXPECT_THROW(parse_json_noting_repeats("{\"a\": 1, \"a\": }", "a.json"), JsonFault);
}

TEST(ShortJson, WritesSmallValuesAndCutsOthers) {
  for (const char* text : {"null", "-1", "1.5", "\"a\\\"b\"", "[]", "{}"})
    EXPECT_EQ(short_json(Json::parse(text)), text);
  EXPECT_EQ(short_json(Json::parse(R"({"a":[1,{"b":[]}],"c":"x"})")),
            R"({"a": [1, {"b": []}], "c": "x"})");
  const Json numbers = std::vector<int>(100000, 1);
  EXPECT_EQ(short_json(numbers).size(), 123U);
  EXPECT_TRUE(short_json(numbers).ends_with(" 1, 1,...")) << short_json(numbers);
  const std::string cut = short_json(repeated("\xc3\xa9", 100000));
  EXPECT_EQ(cut.find("\"\xc3\xa9\xc3\xa9"), 0U);
  EXPECT_LE(cut.size(), 123U);
  EXPECT_NO_THROW(Json(cut).dump()) << "a character was cut in two";
  EXPECT_NO_THROW(Json(short_json("a\xff")).dump());
}

TEST(ShortJson, DoesNotFollowDeepNesting) {
  Json deep = Json::array();
  for (int i = 0; i < 1'000'000; ++i) {
    Json outer = Json::array();
    outer.push_back(std::move(deep));
    deep = std::move(outer);
  }
  EXPECT_EQ(short_json(deep), std::string(120, '[') + "...");
}

}  // namespace
}  // namespace caravan
