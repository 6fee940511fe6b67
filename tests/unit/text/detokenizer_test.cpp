#include "caravan/text/detokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "caravan/text/utf8.h"
#include "unit/text/byte_spec.h"

namespace caravan::text {
namespace {

TEST(Detokenizer, HoldsBackHalfACharacter) {
  const Tokenizer tokenizer(test::byte_spec());
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push('a'), "a");
  EXPECT_EQ(detokenizer.push(0xF0), "");
  EXPECT_EQ(detokenizer.push(0x9F), "");
  EXPECT_EQ(detokenizer.push(0x98), "");
  EXPECT_EQ(detokenizer.push(0x80), "\xF0\x9F\x98\x80");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, ReplacesWhatCannotBecomeValid) {
  const Tokenizer tokenizer(test::byte_spec());
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push(0xE2), "");
  EXPECT_EQ(detokenizer.push('a'),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(detokenizer.push(0x80), "\xEF\xBF\xBD");
  EXPECT_EQ(detokenizer.push(0xE2), "");
  EXPECT_EQ(detokenizer.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, ShowsSpecialTokensOnDemand) {
  TokenizerSpec spec = test::byte_spec();
  const std::int32_t end = test::add_named(spec, "<end>");
  const Tokenizer tokenizer(spec);
  EXPECT_EQ(Detokenizer(tokenizer).push(end), "");
  EXPECT_EQ(Detokenizer(tokenizer, true).push(end), "<end>");
}

TEST(Detokenizer, SaysWhereTheNextTextBegins) {
  const Tokenizer tokenizer(test::byte_spec());
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.characters_before('a'), 0);
  detokenizer.push(0xE2);
  EXPECT_EQ(detokenizer.characters_before(0x82), 0) << "inside the same character";
  EXPECT_EQ(detokenizer.characters_before('a'), 1) << "behind a U+FFFD";
  detokenizer.push(0x82);
  EXPECT_EQ(detokenizer.characters_before(0xAC), 0);
  EXPECT_EQ(detokenizer.characters_before(0xE2), 1);
  EXPECT_EQ(detokenizer.push(0xAC), "\u20ac");
  EXPECT_EQ(detokenizer.characters_before(0x80), 0);
}

RC_GTEST_PROP(DetokenizerProperty, PiecesJoinToTheRepairedBytes, (const std::string& bytes)) {
  const Tokenizer tokenizer(test::byte_spec());
  Detokenizer detokenizer(tokenizer);
  std::string joined;
  for (const char byte : bytes) {
    const std::string piece = detokenizer.push(static_cast<unsigned char>(byte));
    RC_ASSERT(find_invalid_utf8(piece) == std::nullopt);
    joined += piece;
  }
  RC_ASSERT(joined + detokenizer.finish() == replace_invalid_utf8(bytes));
}

}  // namespace
}  // namespace caravan::text
