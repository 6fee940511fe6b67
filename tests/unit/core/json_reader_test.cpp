#include "caravan/core/json_reader.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace caravan {
namespace {

std::string fault(const std::function<void()>& read) {
  try {
    read();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(JsonReader, GivesFieldsOfTheirTypes) {
  const Json json = Json::parse(R"({"i": -3, "r": 2, "b": true, "t": "x", "o": {"i": 1},
                                    "l": [1, 2], "n": null, "d": [1, 2.5], "id": 7})");
  const JsonReader reader(json, "a.json");
  EXPECT_EQ(reader.integer("i"), -3);
  EXPECT_EQ(reader.real("r"), 2.0);
  EXPECT_EQ(reader.boolean("b"), true);
  EXPECT_EQ(reader.text("t"), "x");
  EXPECT_EQ(reader.need_object("o").need_integer("i"), 1);
  EXPECT_EQ(reader.integers("l"), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(reader.reals("d"), (std::vector<double>{1, 2.5}));
  EXPECT_EQ(reader.ids("id"), std::vector<std::int32_t>{7});
  EXPECT_EQ(reader.ids("l"), (std::vector<std::int32_t>{1, 2}));
  EXPECT_TRUE(reader.has("n"));
  EXPECT_FALSE(reader.has("m"));
  for (const char* absent : {"n", "m"}) {
    EXPECT_FALSE(reader.integer(absent));
    EXPECT_FALSE(reader.text(absent));
    EXPECT_EQ(fault([&] { reader.need_real(absent); }),
              fmt::format("a.json: \"{}\" is missing", absent));
  }
}

TEST(JsonReader, SaysWhatWasExpectedAndFound) {
  const Json json = Json::parse(R"({"big": 9223372036854775808, "r": 1.5, "t": "x", "l": [1, "a"],
                                    "deep": {"t": 1}})");
  const JsonReader reader(json, "a.json");
  EXPECT_EQ(fault([&] { reader.integer("big"); }),
            "a.json: \"big\" must be an integer, found 9223372036854775808");
  EXPECT_EQ(fault([&] { reader.integer("r"); }), "a.json: \"r\" must be an integer, found 1.5");
  EXPECT_EQ(fault([&] { reader.real("t"); }), "a.json: \"t\" must be a number, found \"x\"");
  EXPECT_EQ(fault([&] { reader.boolean("t"); }),
            "a.json: \"t\" must be true or false, found \"x\"");
  EXPECT_EQ(fault([&] { reader.text("r"); }), "a.json: \"r\" must be a string, found 1.5");
  EXPECT_EQ(fault([&] { reader.integers("l"); }),
            "a.json: \"l\" must be a list of integers, found [1, \"a\"]");
  EXPECT_EQ(fault([&] { reader.reals("t"); }),
            "a.json: \"t\" must be a list of numbers, found \"x\"");
  EXPECT_EQ(fault([&] { reader.ids("big"); }),
            "a.json: \"big\" must be a token id or a list of them, found 9223372036854775808");
  EXPECT_EQ(fault([&] { reader.object("t"); }),
            "a.json, \"t\" must be a JSON object, found a string");
  EXPECT_EQ(fault([&] { reader.need_object("deep").need_text("t"); }),
            "a.json, \"deep\": \"t\" must be a string, found 1");
  EXPECT_EQ(fault([&] { JsonReader(json.at("l"), "a.json"); }),
            "a.json must be a JSON object, found an array");
}

TEST(JsonReader, NamesFieldsThatNobodyAskedFor) {
  const Json json = Json::parse(R"({"a": 1, "b": null, "c": 2})");
  const JsonReader reader(json, "a.json");
  reader.integer("a");
  reader.integer("b");
  EXPECT_EQ(fault([&] { reader.expect_no_others(); }), "a.json: unknown field \"c\"");
  reader.integer("c");
  EXPECT_EQ(fault([&] { reader.expect_no_others(); }), "");
}

TEST(JsonValues, AreNamedAndChecked) {
  EXPECT_EQ(json_kind(Json::parse("[]")), "an array");
  EXPECT_EQ(json_kind(Json::parse("1.0")), "a number with a fraction");
  EXPECT_EQ(int64_of(Json(-1), "x"), -1);
  EXPECT_EQ(fault([] { int64_of(Json(0.5), "x"); }), "x must be an integer, found 0.5");
  EXPECT_EQ(fault([] { string_of(Json(1), "x"); }), "x must be a string, found an integer");
}

}  // namespace
}  // namespace caravan
