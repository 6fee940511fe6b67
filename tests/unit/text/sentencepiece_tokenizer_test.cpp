// Encoding and decoding of the kind kSentencePiece on small vocabularies.

#include <gtest/gtest.h>

#include "caravan/core/error.h"
#include "caravan/text/detokenizer.h"
#include "caravan/text/tokenizer.h"
#include "support/expect_error.h"

namespace caravan::text {
namespace {

using Ids = std::vector<std::int32_t>;

/// Ids 0 to 255 are byte tokens, the pieces follow with falling scores.
TokenizerSpec spec_of(const std::vector<std::string>& pieces) {
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kSentencePiece;
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.emplace_back(1, static_cast<char>(byte));
    spec.byte_ids.push_back(byte);
    spec.scores.push_back(0);
  }
  for (const std::string& piece : pieces) {
    spec.tokens.push_back(piece);
    spec.scores.push_back(-static_cast<float>(spec.tokens.size()));
  }
  return spec;
}

constexpr std::int32_t kFirst = 256;

TEST(SentencePieceTokenizer, HigherScoresMergeFirst) {
  const Tokenizer tokenizer(spec_of({"bc", "ab", "a", "b", "c", "abc"}));
  EXPECT_EQ(tokenizer.encode("abc"), (Ids{kFirst + 5}));
  EXPECT_EQ(tokenizer.encode("abab"), (Ids{kFirst + 1, kFirst + 1}));
  EXPECT_EQ(tokenizer.encode("abcb"), (Ids{kFirst + 5, kFirst + 3}));
}

TEST(SentencePieceTokenizer, TheLeftmostOfEqualScoresMergesFirst) {
  TokenizerSpec spec = spec_of({"ab", "ba", "a", "b"});
  spec.scores[kFirst + 1] = spec.scores[kFirst];
  const Tokenizer tokenizer(spec);
  EXPECT_EQ(tokenizer.encode("aba"), (Ids{kFirst, kFirst + 2}));
  EXPECT_EQ(tokenizer.encode("bab"), (Ids{kFirst + 1, kFirst + 3}));
}

TEST(SentencePieceTokenizer, CharactersWithoutAPieceBecomeBytes) {
  const Tokenizer tokenizer(spec_of({"a", "\xC3\xA9"}));
  EXPECT_EQ(tokenizer.encode("a\xC3\xA9\xE4\xBD\xA0z"),
            (Ids{kFirst, kFirst + 1, 0xE4, 0xBD, 0xA0, 'z'}));
  // A byte token never comes from the character that looks like it.
  EXPECT_EQ(tokenizer.encode("\xC3\xA4"), (Ids{0xC3, 0xA4}));
}

TEST(SentencePieceTokenizer, CharactersThatAreNoPieceCanMerge) {
  const Tokenizer tokenizer(spec_of({"xyz", "xy"}));
  EXPECT_EQ(tokenizer.encode("xyzy"), (Ids{kFirst, 'y'}));
  EXPECT_EQ(tokenizer.encode("zxy"), (Ids{'z', kFirst + 1}));
}

TEST(SentencePieceTokenizer, PutsASpaceBeforeTextAsTheRuleSays) {
  TokenizerSpec spec = spec_of({" ", "a"});
  spec.tokens.emplace_back();
  spec.scores.push_back(0);
  spec.added_tokens = {{kFirst + 2, "<s>"}};
  const Ids a = {kFirst + 1}, space_a = {kFirst, kFirst + 1};
  const Ids two_spaces_a = {kFirst, kFirst, kFirst + 1};
  struct Case {
    SpacePrefix rule;
    Ids plain, spaced, behind;
  };
  for (const Case& example :
       {Case{SpacePrefix::kNone, a, space_a, a},
        Case{SpacePrefix::kEverySegment, space_a, two_spaces_a, space_a},
        Case{SpacePrefix::kEverySegmentUnlessSpaced, space_a, space_a, space_a},
        Case{SpacePrefix::kFirstSegmentUnlessSpaced, space_a, space_a, a}}) {
    spec.space_prefix = example.rule;
    const Tokenizer tokenizer(spec);
    const auto trace = static_cast<int>(example.rule);
    EXPECT_EQ(tokenizer.encode("a"), example.plain) << trace;
    EXPECT_EQ(tokenizer.encode(" a"), example.spaced) << trace;
    EXPECT_EQ(tokenizer.encode("a", TextPlace::kBehindToken), example.behind) << trace;
    EXPECT_EQ(tokenizer.encode(""), Ids{}) << trace;
    Ids with_special = {kFirst + 2};
    with_special.insert(with_special.end(), example.behind.begin(), example.behind.end());
    EXPECT_EQ(tokenizer.encode_with_special("<s>a"), with_special) << trace;
  }
}

TEST(SentencePieceTokenizer, TakesTheSpaceSymbolForASpace) {
  const Tokenizer tokenizer(spec_of({" ", "a"}));
  EXPECT_EQ(tokenizer.encode("a\xE2\x96\x81"
                             "a"),
            tokenizer.encode("a a"));
}

TEST(SentencePieceTokenizer, NeverMakesControlTokensFromText) {
  TokenizerSpec spec = spec_of({"<", "s", ">", "<s", "s>"});
  spec.tokens.emplace_back();
  spec.scores.push_back(100);
  spec.added_tokens = {{kFirst + 5, "<s>"}};
  EXPECT_EQ(Tokenizer(spec).encode("<s>"), (Ids{kFirst + 3, kFirst + 2}));
}

TEST(SentencePieceTokenizer, MatchesAddedTokensBeforeOrBehindThePrefix) {
  TokenizerSpec spec = spec_of({" ", "a", "t"});
  spec.space_prefix = SpacePrefix::kEverySegment;
  spec.tokens.emplace_back("at");
  spec.scores.clear();  // an empty list of merges
  spec.added_tokens = {{kFirst + 3, "at", false, false}};
  // Each segment gets a space.
  EXPECT_EQ(Tokenizer(spec).encode("tatt"),
            (Ids{kFirst, kFirst + 2, kFirst + 3, kFirst, kFirst + 2}));
  spec.added_tokens = {{kFirst + 3, " at", false, true}};
  EXPECT_EQ(Tokenizer(spec).encode("atat at"),
            (Ids{kFirst + 3, kFirst + 1, kFirst + 2, kFirst + 3}));
}

TEST(SentencePieceTokenizer, LongestTokenCountsSpacesAsTheirSymbol) {
  EXPECT_EQ(Tokenizer(spec_of({"    ", " ", "abcde"})).max_token_bytes(), 12U);
  TokenizerSpec spec = spec_of({" "});
  spec.remove_extra_spaces = true;
  const Tokenizer tokenizer(spec);
  EXPECT_EQ(tokenizer.encode(std::string(1000, ' ')), Ids{});
  EXPECT_GT(tokenizer.max_token_bytes(), 1000U);
}

TEST(SentencePieceTokenizer, TextBeginsWithoutTheSpaceThatWasPutThere) {
  TokenizerSpec spec = spec_of({" ", "a", " a"});
  spec.tokens.emplace_back();
  spec.scores.push_back(0);
  spec.added_tokens = {{kFirst + 3, "<s>"}};
  spec.space_prefix = SpacePrefix::kEverySegment;
  const Tokenizer tokenizer(spec);
  const auto text = [&](const Ids& ids, DecodedText start, bool show_special = false) {
    Detokenizer detokenizer(tokenizer, show_special, start);
    std::string result;
    for (const std::int32_t id : ids) result += detokenizer.push(id);
    return result + detokenizer.finish();
  };
  const Ids ids = {kFirst + 3, kFirst + 2, kFirst + 2};
  EXPECT_EQ(text(ids, DecodedText::kBegins), "a a");
  EXPECT_EQ(text(ids, DecodedText::kContinues), " a a");
  EXPECT_EQ(text(ids, DecodedText::kBegins, true), "<s> a a");
  EXPECT_EQ(text({kFirst, kFirst + 2}, DecodedText::kBegins), " a");
  EXPECT_EQ(text({kFirst + 1, kFirst + 2}, DecodedText::kBegins), "a a");
  spec.space_prefix = SpacePrefix::kNone;
  const Tokenizer unchanged(spec);
  EXPECT_EQ(Detokenizer(unchanged, false, DecodedText::kBegins).push(kFirst + 2), " a");
}

TEST(SentencePieceTokenizer, ReportsItsOwnFaults) {
  const auto expect_problem = [](const TokenizerSpec& spec, const std::string& words) {
    test::expect_error<ConfigError>([&] { const Tokenizer tokenizer(spec); }, words);
  };
  TokenizerSpec spec = spec_of({"a", "b"});
  spec.byte_ids.pop_back();
  expect_problem(spec, "there are ids for 255 bytes, expected 256");
  spec = spec_of({"a", "b"});
  spec.byte_ids['a'] = kFirst + 1;
  expect_problem(spec, "byte 0x61 has id 257, which is not a token of this one byte");
  spec.byte_ids['a'] = 1000;
  expect_problem(spec, "byte 0x61 has id 1000");
  spec = spec_of({"a", "b"});
  spec.scores.pop_back();
  expect_problem(spec, "there are 257 scores for 258 tokens");
  spec = spec_of({"a", "b", "ab"});
  spec.merges = {{kFirst, kFirst + 1}};
  expect_problem(spec, "there are both scores and 1 merges");
  spec = spec_of({"a", "\xC3"});
  expect_problem(spec, "token 257 is not valid UTF-8");
}

}  // namespace
}  // namespace caravan::text
