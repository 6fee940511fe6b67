// Long runs of one thing: they must neither take quadratic time nor lose a byte.

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <sstream>

#include "caravan/text/tokenizer.h"

namespace caravan::text {
namespace {

std::string repeat(const std::string& unit, std::size_t bytes) {
  std::string text;
  text.reserve(bytes + unit.size());
  while (text.size() < bytes) text += unit;
  return text;
}

std::string read_data(const std::string& name) {
  std::ifstream file(std::string(CARAVAN_TEST_DATA) + "/text/" + name, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

const std::vector<std::string> kUnits = {
    "a",   " ", "1",  "\n", "ab",       "\xC2\xA0",         "\r",           "\t ",        "\n ",
    "!",   "'", "'s", "a'", "\xCC\x81", "\xF0\x9F\x98\x80", "\xE2\x80\x8B", "<|eot_id|>", "a1",
    " !\n"};

/// `prefix` is what the tokenizer puts in front of text.
void expect_linear_and_whole(const Tokenizer& tokenizer, const std::string& prefix = {}) {
  for (const std::string& unit : kUnits) {
    const std::string text = repeat(unit, 500'000);
    const auto start = std::chrono::steady_clock::now();
    const std::vector<std::int32_t> ids = tokenizer.encode(text);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(tokenizer.decode_bytes(ids), prefix + text) << "run of \"" << unit << "\"";
    // Quadratic time would be hours; linear time is well below a second.
    EXPECT_LT(seconds.count(), 30.0) << "run of \"" << unit << "\"";
  }
}

TEST(HostileText, LongRunsWithLlama3Pattern) {
  const std::string file = read_data("bpe-small/tokenizer.model");
  expect_linear_and_whole(Tokenizer(tokenizer_from_tiktoken(file, 1792 + 256)));
}

TEST(HostileText, LongRunsWithTwoPatterns) {
  const std::string json = read_data("smollm-small/tokenizer.json");
  expect_linear_and_whole(Tokenizer(tokenizer_from_hf_json(json, "")));
}

TEST(HostileText, LongRunsWithoutWords) {
  // The whole text is one piece here.
  const Tokenizer tokenizer(tokenizer_from_sentencepiece(read_data("spm-small/tokenizer.model")));
  expect_linear_and_whole(tokenizer, " ");
}

TEST(HostileText, LongRunsWhereNothingEndsAWord) {
  TokenizerSpec spec = tokenizer_from_sentencepiece(read_data("spm-small/tokenizer.model"));
  spec.tokens.emplace_back("e  ");
  spec.scores.push_back(0);
  expect_linear_and_whole(Tokenizer(spec), " ");
}

TEST(HostileText, LongRunsWithoutMachineCode) {
  TokenizerSpec spec = tokenizer_from_tiktoken(read_data("bpe-small/tokenizer.model"), 1792 + 256);
  const Tokenizer compiled(spec);
  spec.split_patterns.front().insert(0, "(*NO_JIT)");
  const Tokenizer interpreted(spec);
  expect_linear_and_whole(interpreted);
  const std::string text = "It's 12345 words,\n\n  and   more!\r\n " + repeat(" \xC2\xA0", 10'000);
  EXPECT_EQ(interpreted.encode(text), compiled.encode(text));
}

TEST(HostileText, LongRunEncodesAsItsPeriods) {
  const std::string file = read_data("bpe-small/tokenizer.model");
  const Tokenizer tokenizer(tokenizer_from_tiktoken(file, 1792 + 256));
  const auto group = tokenizer.encode("111");  // groups of three digits
  std::vector<std::int32_t> expected;
  for (int i = 0; i < 1'000'000; ++i) expected.insert(expected.end(), group.begin(), group.end());
  EXPECT_EQ(tokenizer.encode(repeat("1", 3'000'000)), expected);
}

}  // namespace
}  // namespace caravan::text
