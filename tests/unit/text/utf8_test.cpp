#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "caravan/text/utf8.h"

namespace caravan::text {
namespace {

const std::string kBad = "\xEF\xBF\xBD";  // U+FFFD

std::string encoded(const std::vector<char32_t>& code_points) {
  std::string text;
  for (const char32_t c : code_points) append_utf8(text, c);
  return text;
}

/// Bytes that are often near the borders of what is valid.
rc::Gen<std::string> awkward_bytes() {
  const auto byte =
      rc::gen::elementOf(std::string("a\x7F\x80\x8F\x90\x9F\xA0\xBF\xC0\xC1\xC2\xDF\xE0\xE1\xEC\xED"
                                     "\xEE\xEF\xF0\xF1\xF3\xF4\xF5\xFF"));
  return rc::gen::container<std::string>(byte);
}

TEST(Utf8, EncodesTheBordersOfEachLength) {
  EXPECT_EQ(encoded({0x7F}), "\x7F");
  EXPECT_EQ(encoded({0x80}), "\xC2\x80");
  EXPECT_EQ(encoded({0x7FF}), "\xDF\xBF");
  EXPECT_EQ(encoded({0x800}), "\xE0\xA0\x80");
  EXPECT_EQ(encoded({0xFFFF}), "\xEF\xBF\xBF");
  EXPECT_EQ(encoded({0x10000}), "\xF0\x90\x80\x80");
  EXPECT_EQ(encoded({0x10FFFF}), "\xF4\x8F\xBF\xBF");
  EXPECT_EQ(encoded({0xD800, 0xDFFF, 0x110000}), kBad + kBad + kBad);
}

TEST(Utf8, FindsTheFirstFault) {
  EXPECT_EQ(find_invalid_utf8(""), std::nullopt);
  EXPECT_EQ(find_invalid_utf8("plain text, more than eight bytes"), std::nullopt);
  EXPECT_EQ(find_invalid_utf8("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"), std::nullopt);
  EXPECT_EQ(find_invalid_utf8("0123456789\xFF"), 10U);
  EXPECT_EQ(find_invalid_utf8("a\xC0\x80"), 1U);          // overlong
  EXPECT_EQ(find_invalid_utf8("a\xE0\x9F\xBF"), 1U);      // overlong
  EXPECT_EQ(find_invalid_utf8("a\xED\xA0\x80"), 1U);      // surrogate
  EXPECT_EQ(find_invalid_utf8("a\xF4\x90\x80\x80"), 1U);  // above U+10FFFF
  EXPECT_EQ(find_invalid_utf8("ab\xE2\x82"), 2U);         // cut off
}

TEST(Utf8, ReplacesEachMaximalSubpart) {
  // The example of Unicode 15, section 3.9, table 3-11.
  EXPECT_EQ(replace_invalid_utf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a" + kBad + kBad + kBad + "b" + kBad + "c" + kBad + kBad + "d");
  EXPECT_EQ(replace_invalid_utf8("\xE0\x80\x80"), kBad + kBad + kBad);
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), kBad + kBad + kBad);
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98"), kBad);
}

TEST(Utf8, HoldsBackOnlyWhatCanBecomeValid) {
  EXPECT_EQ(complete_utf8_prefix(""), 0U);
  EXPECT_EQ(complete_utf8_prefix("ab"), 2U);
  EXPECT_EQ(complete_utf8_prefix("ab\xC3"), 2U);
  EXPECT_EQ(complete_utf8_prefix("ab\xC3\xA9"), 4U);
  EXPECT_EQ(complete_utf8_prefix("ab\xF0\x9F\x98"), 2U);
  EXPECT_EQ(complete_utf8_prefix("ab\xF0\x9F\x98\x80"), 6U);
  EXPECT_EQ(complete_utf8_prefix("ab\xE0\x80"), 4U);  // already invalid
  EXPECT_EQ(complete_utf8_prefix("\x80\x80\x80\x80"), 4U);
  EXPECT_EQ(complete_utf8_prefix("ab\xFF"), 3U);
}

RC_GTEST_PROP(Utf8Property, EveryCodePointSequenceIsValid, (const std::vector<char32_t>& points)) {
  const std::string text = encoded(points);
  RC_ASSERT(find_invalid_utf8(text) == std::nullopt);
  RC_ASSERT(replace_invalid_utf8(text) == text);
  RC_ASSERT(complete_utf8_prefix(text) == text.size());
}

RC_GTEST_PROP(Utf8Property, RepairedBytesAreValidAndValidBytesStay, ()) {
  const std::string bytes = *awkward_bytes();
  const std::string repaired = replace_invalid_utf8(bytes);
  RC_ASSERT(find_invalid_utf8(repaired) == std::nullopt);
  RC_ASSERT((repaired == bytes) == (find_invalid_utf8(bytes) == std::nullopt));
}

RC_GTEST_PROP(Utf8Property, RepairInPartsGivesTheSame, ()) {
  const std::string bytes = *awkward_bytes();
  std::string pending, repaired;
  for (const char byte : bytes) {
    pending.push_back(byte);
    const std::size_t complete = complete_utf8_prefix(pending);
    RC_ASSERT(pending.size() - complete <= 3U);
    repaired += replace_invalid_utf8(pending.substr(0, complete));
    pending.erase(0, complete);
  }
  RC_ASSERT(repaired + replace_invalid_utf8(pending) == replace_invalid_utf8(bytes));
}

}  // namespace
}  // namespace caravan::text
