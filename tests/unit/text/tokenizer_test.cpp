#include "caravan/text/tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "caravan/core/error.h"
#include "support/expect_error.h"
#include "unit/text/byte_spec.h"

namespace caravan::text {
namespace {

using test::add_named;
using test::byte_spec;
using test::expect_error;
using Ids = std::vector<std::int32_t>;

/// Problems of `spec` that contain `words`; the tokenizer must refuse it with the same words.
void expect_problem(const TokenizerSpec& spec, const std::string& words) {
  expect_error<ConfigError>([&] { Tokenizer{spec}; }, words);
  int found = 0;
  for (const std::string& problem : spec.problems()) {
    if (problem.find(words) != std::string::npos) ++found;
  }
  EXPECT_EQ(found, 1) << words;
}

TEST(Tokenizer, TakesSpecialTokensOnlyFromTrustedText) {
  TokenizerSpec spec = byte_spec();
  const std::int32_t end = add_named(spec, "<end>");
  const Tokenizer tokenizer(spec);
  EXPECT_EQ(tokenizer.encode("a<end>"), (Ids{'a', '<', 'e', 'n', 'd', '>'}));
  EXPECT_EQ(tokenizer.encode_with_special("a<end>"), (Ids{'a', end}));
}

TEST(Tokenizer, NeverTakesASpecialTokenAsAWholePiece) {
  TokenizerSpec spec = byte_spec();
  spec.ignore_merges = true;
  const std::int32_t end = add_named(spec, "<end>");
  spec.tokens[static_cast<std::size_t>(end)] = "<end>";  // a file may store it so
  EXPECT_EQ(Tokenizer(spec).encode("<end>"), (Ids{'<', 'e', 'n', 'd', '>'}));
}

TEST(Tokenizer, MatchesAddedTokensLeftmostLongest) {
  TokenizerSpec spec = byte_spec();
  const std::int32_t ab = add_named(spec, "ab", false);
  const std::int32_t abcd = add_named(spec, "abcd", false);
  const std::int32_t bcde = add_named(spec, "bcde", false);
  const Tokenizer tokenizer(spec);
  EXPECT_EQ(tokenizer.encode("abcdef"), (Ids{abcd, 'e', 'f'}));
  EXPECT_EQ(tokenizer.encode("abcx"), (Ids{ab, 'c', 'x'}));
  EXPECT_EQ(tokenizer.encode("xbcde"), (Ids{'x', bcde}));
  EXPECT_EQ(tokenizer.decode_bytes(Ids{abcd, ab}), "abcdab");
  EXPECT_FALSE(tokenizer.is_special(ab));
}

TEST(Tokenizer, SplitsTextAroundAddedTokensIndependently) {
  TokenizerSpec spec = byte_spec();
  const std::int32_t two = test::add_token(spec, "bb");
  spec.merges = {{'b', 'b'}};
  const std::int32_t mark = add_named(spec, "#", false);
  EXPECT_EQ(Tokenizer(spec).encode("b#bb#b"), (Ids{'b', mark, two, mark, 'b'}));
}

TEST(Tokenizer, ShowsSpecialTokensOnDemand) {
  TokenizerSpec spec = byte_spec();
  const std::int32_t end = add_named(spec, "<end>");
  spec.tokens.emplace_back();  // an unused id
  const Tokenizer tokenizer(spec);
  EXPECT_EQ(tokenizer.vocab_size(), 258);
  EXPECT_EQ(tokenizer.decode_bytes(Ids{'a', end, 'b'}), "ab");
  EXPECT_EQ(tokenizer.decode_bytes(Ids{'a', end, 'b'}, true), "a<end>b");
  EXPECT_EQ(tokenizer.token_bytes(257), "");
  EXPECT_EQ(tokenizer.token_bytes(258), "");
  EXPECT_EQ(tokenizer.token_bytes(-1, true), "");
  EXPECT_EQ(tokenizer.special_id("<end>"), end);
  EXPECT_EQ(tokenizer.special_id("a"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(end));
  EXPECT_FALSE(tokenizer.is_special('a'));
  EXPECT_FALSE(tokenizer.is_special(1 << 30));
  EXPECT_EQ(tokenizer.max_token_bytes(), 5U);
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  const Tokenizer tokenizer(byte_spec());
  expect_error<InputError>([&] { tokenizer.encode("abc\xFF"); }, "not valid UTF-8 at byte 3 of 4");
  EXPECT_EQ(tokenizer.encode(""), Ids());
}

TEST(Tokenizer, EncodesFromSeveralThreadsAtOnce) {
  TokenizerSpec spec = byte_spec();
  test::add_token(spec, "ab");
  spec.merges = {{'a', 'b'}};
  spec.split_patterns = {"[a-c]+"};
  const Tokenizer tokenizer(spec);
  const std::string text = "abcabc abab cab xyz " + std::string(500, 'a') + "b";
  const Ids expected = tokenizer.encode(text);
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (Ids& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) result = tokenizer.encode(text);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, expected);
}

TEST(TokenizerSpec, ReportsEveryKindOfFault) {
  EXPECT_TRUE(byte_spec().problems().empty());
  TokenizerSpec spec;
  expect_problem(spec, "there are no tokens");

  spec = byte_spec();
  spec.space_prefix = SpacePrefix::kEverySegment;
  expect_problem(spec, "white-space rules are for SentencePiece tokenizers only");

  spec = byte_spec();
  spec.kind = TokenizerKind::kTiktoken;
  spec.tokens[0xC0].clear();
  expect_problem(spec, "byte 0xC0 has no token");
  spec = byte_spec();
  spec.kind = TokenizerKind::kTiktoken;
  spec.merges = {{'a', 'b'}};
  expect_problem(spec, "a tiktoken vocabulary has no merge list, but 1 merges are given");

  spec = byte_spec();
  spec.tokens.emplace_back("a");
  expect_problem(spec, "tokens 97 and 256 have the same bytes");
  spec = byte_spec();
  spec.tokens.emplace_back(1025, 'a');
  expect_problem(spec, "token 256 has 1025 bytes; at most 1024 are supported");
  spec.tokens.resize((std::size_t{1} << 22) + 1);
  expect_problem(spec, "there are 4194305 tokens; at most 4194304 are supported");
}

TEST(TokenizerSpec, ReportsFaultyMerges) {
  TokenizerSpec spec = byte_spec();
  spec.merges = {{'a', 256}};
  expect_problem(spec, "merge 0 joins ids 97 and 256, of which one is not an ordinary token");
  spec.merges = {{-1, 'a'}};
  expect_problem(spec, "merge 0 joins ids -1 and 97, of which one is not");
  spec.merges = {{'a', 'b'}};
  expect_problem(spec, "merge 0 joins ids 97 and 98 to bytes that are not an ordinary token");
  add_named(spec, "ab", true);
  expect_problem(spec, "merge 0 joins ids 97 and 98 to bytes that are not an ordinary token");
}

TEST(TokenizerSpec, ReportsFaultyAddedTokensAndIds) {
  TokenizerSpec spec = byte_spec();
  spec.added_tokens = {{256, "<x>", true}};
  expect_problem(spec, "added token \"<x>\" has id 256, outside 0 to 255");
  spec.added_tokens = {{255, "", true}};
  expect_problem(spec, "added token 255 has no content");
  spec.added_tokens = {{255, std::string(1025, 'x'), true}};
  expect_problem(spec, "added token 255 has 1025 bytes");
  spec.added_tokens = {{255, "<x>", true}, {255, "<y>", true}};
  expect_problem(spec, "id 255 is given to two added tokens");
  spec.added_tokens = {{254, "<x>", true}, {255, "<x>", true}};
  expect_problem(spec, "added token \"<x>\" is listed twice");

  spec = byte_spec();
  spec.bos_id = 256;
  expect_problem(spec, "bos_id 256 is outside 0 to 255");
  spec = byte_spec();
  spec.eos_id = -1;
  expect_problem(spec, "eos_id -1 is outside 0 to 255");
  spec = byte_spec();
  spec.unknown_id = 1000;
  expect_problem(spec, "unknown_id 1000 is outside");
  spec = byte_spec();
  spec.add_bos = true;
  expect_problem(spec, "prompts start with BOS, but there is no bos_id");
}

TEST(TokenizerSpec, ListsSeveralFaultsButNotMillions) {
  TokenizerSpec spec = byte_spec();
  spec.bos_id = 300;
  spec.split_patterns = {"(", "a"};
  EXPECT_EQ(spec.problems().size(), 2U);
  for (int i = 0; i < 1000; ++i) spec.merges.emplace_back(-1, -1);
  const auto problems = spec.problems();
  EXPECT_EQ(problems.size(), 51U);
  EXPECT_EQ(problems.back(), "... and 952 more");
}

}  // namespace
}  // namespace caravan::text
