// How text is cut: seen through a tokenizer in which every piece of the expected cut is a token.

#include <gtest/gtest.h>

#include <algorithm>

#include "caravan/core/error.h"
#include "caravan/text/tokenizer.h"
#include "support/expect_error.h"
#include "unit/text/byte_spec.h"

namespace caravan::text {
namespace {

using test::expect_error;
using Pieces = std::vector<std::string>;

/// Expects that `patterns` cut `text` into exactly `pieces`. Each piece is a token, and so is the
/// whole text, so that a missing cut shows as well.
void expect_pieces(const std::vector<std::string>& patterns, const Pieces& pieces) {
  TokenizerSpec spec = test::byte_spec();
  spec.ignore_merges = true;
  spec.split_patterns = patterns;
  std::string text;
  Pieces words;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    text += pieces[i];
    std::string run;
    for (std::size_t j = i; j < pieces.size(); ++j) {  // all runs of neighbours are tokens, too
      run += pieces[j];
      if (run.size() > 1 && std::find(words.begin(), words.end(), run) == words.end()) {
        words.push_back(run);
      }
    }
  }
  for (const std::string& word : words) test::add_token(spec, word);
  const Tokenizer tokenizer(spec);
  Pieces got;
  for (const std::int32_t id : tokenizer.encode(text)) got.emplace_back(tokenizer.token_bytes(id));
  EXPECT_EQ(got, pieces) << text;
}

TEST(SplitPatterns, NoPatternLeavesTheText) { expect_pieces({}, {"one piece, whatever 12"}); }

TEST(SplitPatterns, KeepsWhatNoMatchCovers) {
  expect_pieces({"b+"}, {"aa", "bb", "a", "b", "cc"});
  expect_pieces({"b"}, {"b", "b"});
}

TEST(SplitPatterns, AppliesEachToThePiecesOfTheOneBefore) {
  // The second pattern sees the end of a piece as the end of the text.
  expect_pieces({"[0-9]", R"(\s+(?!\S)|\S+)"}, {"a", " ", "1", "2", "  ", "3"});
}

TEST(SplitPatterns, IgnoresEmptyMatches) { expect_pieces({"x*"}, {"ab", "xx", "c"}); }

TEST(SplitPatterns, SpacesAreThoseOfUnicode) {
  const std::string ideographic = "\xE3\x80\x80", vowel_separator = "\xE1\xA0\x8E";
  expect_pieces({R"(\s)"}, {"a", "\xC2\xA0", "b", ideographic, "c" + vowel_separator});
  expect_pieces({R"(\S+)"}, {"a" + vowel_separator, "\xC2\x85", "b"});
  expect_pieces({R"([^\sx]+)"}, {"a" + vowel_separator, "x", "b", ideographic, "c"});
  expect_pieces({R"([]\s]+)"}, {"a", "] ", "\\s"});
  expect_pieces({R"(\Qa\s\E)"}, {"b", "a\\s", " "});
}

TEST(SplitPatterns, LettersAndNumbersAreThoseOfUnicode16) {
  const std::string han_extension_h = "\xF0\xB1\x8D\x90", kawi_digit = "\xF0\x91\xBD\x90";
  expect_pieces({R"(\p{L}+)"}, {"1", "a" + han_extension_h, "2"});
  expect_pieces({R"([^\p{L}\p{N}]+)"}, {"a", "!", han_extension_h, "?", kawi_digit, "-"});
  expect_pieces({R"(\p{N}{1,2})"}, {"a", "1" + kawi_digit, "3"});
}

TEST(SplitPatterns, RefusesWhatDoesNotCompile) {
  TokenizerSpec spec = test::byte_spec();
  spec.split_patterns = {"a(b"};
  expect_error<ConfigError>([&] { Tokenizer{spec}; },
                            "split pattern \"a(b\" does not compile: missing closing parenthesis");
  spec.split_patterns = {R"(\C)"};  // would cut characters apart
  expect_error<ConfigError>([&] { Tokenizer{spec}; }, "does not compile");
}

TEST(SplitPatterns, GivesUpOnExponentialBacktracking) {
  TokenizerSpec spec = test::byte_spec();
  spec.split_patterns = {"(?:a|aa|aaa)+b"};
  const Tokenizer tokenizer(spec);
  expect_error<InputError>([&] { tokenizer.encode(std::string(200, 'a') + "cb"); },
                           "fails at byte 0 of a text of 202 bytes: match limit exceeded");
}

/// What a GGUF file with this name of a pre-tokenizer gets.
std::vector<std::string> patterns_of(const std::string& name) {
  GgufTokenizer source;
  source.model = "gpt2";
  source.pre = name;
  source.tokens = {"a"};
  return tokenizer_from_gguf(source).split_patterns;
}

// Cuts of the same patterns by Python's "regex" module.
TEST(SplitPatterns, OfNamedPreTokenizers) {
  const std::string you = "\xE4\xBD\xA0\xE5\xA5\xBD", ka = "\xE3\x82\xAB", am = "\xE0\xB8\xB3";
  const std::string e_acute = "\xC3\xA9", dots = "\xE2\x80\xA6", stop = "\xE3\x80\x82";
  expect_pieces(patterns_of("tekken"), {"Hello", "World", " it", "'s", " ABCdef", " GHI", " ", "1",
                                        "2", " //\n\n", you, " " + e_acute});
  expect_pieces(patterns_of("deepseek-coder"), {"int", " x", " = ", "1", "2", ";", " //", " ab",
                                                "\n", "\n", " ", " ", you, " ", ka + am, "x"});
  expect_pieces(patterns_of("viking"), {"one", " two-three", ",", " ", "3", "a", " (", "x",
                                        ")" + dots, " d", stop, "e", " ", " f"});
  expect_pieces(patterns_of("poro-chat"),
                {"one", " two-three", ",", " 35", " (", "x", ")" + dots, " d", stop, "e"});
  expect_pieces(patterns_of("seed-coder"),
                {"hi", "!", "\n\n", " it", "'S", " ", "1", "2", " ;", "\n"});
}

}  // namespace
}  // namespace caravan::text
