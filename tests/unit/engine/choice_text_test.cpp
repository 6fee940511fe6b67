#include "caravan/engine/choice_text.h"

#include <gtest/gtest.h>

#include "byte_tokenizer.h"
#include "caravan/core/error.h"

namespace caravan::engine {
namespace {

using test::kDotPiece;
using test::kEosId;
using test::kEotId;
using test::kStopPiece;

struct Result {
  std::optional<Ending> ending;
  std::string text;
  std::size_t num_tokens = 0;
};

Result run(const SamplingParams& params, const std::vector<std::int32_t>& ids) {
  static const text::Tokenizer tokenizer(test::byte_tokenizer_spec());
  ChoiceText choice(tokenizer, params);
  Result result;
  for (const std::int32_t id : ids) {
    ++result.num_tokens;
    result.ending = choice.push(id);
    if (result.ending) break;
  }
  result.text = choice.finish();
  return result;
}

std::vector<std::int32_t> bytes(std::string_view text) {
  std::vector<std::int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::vector<std::int32_t> operator+(std::vector<std::int32_t> ids, std::int32_t id) {
  ids.push_back(id);
  return ids;
}

SamplingParams params_with_stops(std::vector<std::string> stops) {
  SamplingParams params;
  params.max_tokens = 100;
  params.stop_strings = std::move(stops);
  params.stop_ids = {kEosId, kEotId};
  params.eos_ids = {kEosId};
  return params;
}

TEST(ChoiceText, EndsAtEosWithoutReason) {
  const Result result = run(params_with_stops({}), bytes("hello") + kEosId);
  ASSERT_TRUE(result.ending);
  EXPECT_EQ(result.ending->reason, FinishReason::kStop);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(result.ending->stop));
  EXPECT_EQ(result.text, "hello");
  EXPECT_EQ(result.num_tokens, 6U);
}

TEST(ChoiceText, DropsTheSpaceOfATokenizerOnlyWhereTextBegins) {
  text::TokenizerSpec spec;
  spec.kind = text::TokenizerKind::kSentencePiece;
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.emplace_back(1, static_cast<char>(byte));
    spec.byte_ids.push_back(byte);
  }
  spec.tokens.emplace_back(" a");
  spec.space_prefix = text::SpacePrefix::kEverySegment;
  const text::Tokenizer tokenizer(spec);
  const SamplingParams params = params_with_stops({});
  for (const auto start : {text::DecodedText::kBegins, text::DecodedText::kContinues}) {
    ChoiceText choice(tokenizer, params, start);
    choice.push(256);
    choice.push(256);
    EXPECT_EQ(choice.finish(), start == text::DecodedText::kBegins ? "a a" : " a a");
  }
}

TEST(ChoiceText, EndsAtAnotherStopIdAndNamesIt) {
  const Result result = run(params_with_stops({}), bytes("hello") + kEotId);
  ASSERT_TRUE(result.ending);
  EXPECT_EQ(std::get<std::int32_t>(result.ending->stop), kEotId);
}

TEST(ChoiceText, ShowsAVisibleStopTokenOnlyWhenStopsAreIncluded) {
  SamplingParams params = params_with_stops({});
  params.stop_ids = {'.'};
  EXPECT_EQ(run(params, bytes("end.")).text, "end");
  params.include_stop_string = true;
  EXPECT_EQ(run(params, bytes("end.")).text, "end.");
}

TEST(ChoiceText, EndsAtMaxTokens) {
  SamplingParams params = params_with_stops({});
  params.max_tokens = 3;
  const Result result = run(params, bytes("hello"));
  ASSERT_TRUE(result.ending);
  EXPECT_EQ(result.ending->reason, FinishReason::kLength);
  EXPECT_EQ(result.text, "hel");
}

TEST(ChoiceText, PrefersStopOverLengthOnTheLastToken) {
  SamplingParams params = params_with_stops({"llo"});
  params.max_tokens = 5;
  const Result result = run(params, bytes("hello"));
  EXPECT_EQ(result.ending->reason, FinishReason::kStop);
  EXPECT_EQ(result.text, "he");
}

TEST(ChoiceText, FindsAStopStringThatTokensCut) {
  const Result result = run(params_with_stops({"lo wor"}), bytes("hello world"));
  ASSERT_TRUE(result.ending);
  EXPECT_EQ(std::get<std::string>(result.ending->stop), "lo wor");
  EXPECT_EQ(result.text, "hel");
  EXPECT_EQ(result.num_tokens, 9U) << "all tokens up to the one that completed it";
}

TEST(ChoiceText, CutsInsideTheTokenThatHoldsTheStopString) {
  EXPECT_EQ(run(params_with_stops({"."}), {'x', kDotPiece, 'y'}).text, "xa");
  SamplingParams params = params_with_stops({"."});
  params.include_stop_string = true;
  EXPECT_EQ(run(params, {'x', kDotPiece, 'y'}).text, "xa.");
}

TEST(ChoiceText, RecoversFromAPartialMatch) {
  EXPECT_EQ(run(params_with_stops({"aab"}), bytes("aaab!")).text, "a");
  const Result none = run(params_with_stops({"abc"}), bytes("ab-ab-ab"));
  EXPECT_FALSE(none.ending);
  EXPECT_EQ(none.text, "ab-ab-ab") << "an unfinished match is ordinary text";
}

TEST(ChoiceText, TakesTheMatchThatBeginsFirst) {
  // Both end inside one token.
  const Result result = run(params_with_stops({"TO", "ST"}), {'x', kStopPiece});
  EXPECT_EQ(result.text, "x");
  EXPECT_EQ(std::get<std::string>(result.ending->stop), "ST");
  const Result listed = run(params_with_stops({"STO", "ST"}), {kStopPiece});
  EXPECT_EQ(std::get<std::string>(listed.ending->stop), "STO");
}

TEST(ChoiceText, HonoursNoStopBeforeMinTokens) {
  SamplingParams params = params_with_stops({"b"});
  params.min_tokens = 3;
  const Result result = run(params, bytes("abcabc"));
  ASSERT_TRUE(result.ending);
  EXPECT_EQ(result.num_tokens, 5U);
  EXPECT_EQ(result.text, "abca");
  params.min_tokens = 2;
  params.stop_strings = {"abc"};
  EXPECT_EQ(run(params, bytes("abcabc")).num_tokens, 3U)
      << "a stop string may begin before and end behind min_tokens";
}

TEST(ChoiceText, WithoutStopIdsNothingButStopStringsEndsIt) {
  SamplingParams params = params_with_stops({"!"});
  params.stop_ids.clear();
  const Result result = run(params, {'a', kEosId, 'b', kEotId, 'c', '!', 'd'});
  EXPECT_EQ(result.text, "abc");
  EXPECT_EQ(std::get<std::string>(result.ending->stop), "!");
}

TEST(ChoiceText, ShowsSpecialTokensOnlyWhenAsked) {
  SamplingParams params = params_with_stops({});
  params.stop_ids.clear();
  EXPECT_EQ(run(params, {'a', kEotId, 'b'}).text, "ab");
  params.show_special = true;
  EXPECT_EQ(run(params, {'a', kEotId, 'b'}).text, "a<eot>b");
  params.stop_strings = {"eot>b"};
  EXPECT_EQ(run(params, {'a', kEotId, 'b'}).text, "a<");
}

TEST(ChoiceText, NeverShowsHalfACharacter) {
  const std::string euro = "\xE2\x82\xAC";
  EXPECT_EQ(run(params_with_stops({}), bytes("1" + euro)).text, "1" + euro);
  EXPECT_EQ(run(params_with_stops({}), bytes("1" + euro.substr(0, 2))).text, "1\xEF\xBF\xBD");
  const Result stopped = run(params_with_stops({euro}), bytes("1" + euro + "2"));
  EXPECT_EQ(stopped.text, "1");
  EXPECT_EQ(stopped.num_tokens, 4U);
}

TEST(ChoiceText, DropsWhatLiesBehindAStopString) {
  const text::Tokenizer tokenizer([] {
    text::TokenizerSpec spec = test::byte_tokenizer_spec(262);
    spec.tokens[260] = "!\xE2";  // the stop string and the beginning of a character
    return spec;
  }());
  const SamplingParams params = params_with_stops({"!"});
  ChoiceText choice(tokenizer, params);
  EXPECT_FALSE(choice.push('a'));
  EXPECT_TRUE(choice.push(260));
  EXPECT_EQ(choice.finish(), "a");
}

TEST(StopMatcher, RefusesAnEmptyStopString) {
  const std::vector<std::string> stops{"a", ""};
  EXPECT_THROW(StopMatcher(stops, false), InternalError);
}

// Against the definition: the shortest prefix of the tokens whose text holds a stop string.
TEST(StopMatcherProperty, EqualsSearchInTheWholeText) {
  std::uint64_t state = 1;
  const auto below = [&](std::uint64_t limit) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state >> 33) % limit;
  };
  const auto word = [&](std::uint64_t longest) {
    std::string text;
    for (std::uint64_t i = 1 + below(longest); i > 0; --i) {
      text += static_cast<char>('a' + below(2));
    }
    return text;
  };
  int stopped = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops;
    for (std::uint64_t i = 1 + below(3); i > 0; --i) stops.push_back(word(7));
    StopMatcher matcher(stops, false);
    std::string whole;
    for (int token = 0; token < 12; ++token) {
      const std::string piece = word(3);
      whole += piece;
      std::size_t first = std::string::npos;
      for (const std::string& stop : stops) first = std::min(first, whole.find(stop));
      const bool found = matcher.append(piece).has_value();
      ASSERT_EQ(found, first != std::string::npos) << whole;
      ASSERT_EQ(matcher.text(), found ? whole.substr(0, first) : whole);
      if (found) {
        ++stopped;
        break;
      }
    }
  }
  EXPECT_GT(stopped, 1000);
}

}  // namespace
}  // namespace caravan::engine
