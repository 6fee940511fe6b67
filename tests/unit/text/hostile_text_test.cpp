// Long runs of one thing: they must neither take quadratic time nor lose a byte.

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

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

// Sanitizers take a multiple of time and memory.
#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t kLargeBytes = 10'000'000;
#else
constexpr std::size_t kLargeBytes = 100'000'000;
#endif

/// Of this thread: what other programs of the machine do does not count.
double cpu_seconds() {
  timespec now{};
  EXPECT_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// A figure of the kernel about this process: "VmHWM" is the most memory that it has held.
std::int64_t status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return 1024 * std::stoll(line.substr(name.size() + 1));
  }
  ADD_FAILURE() << name << " is not told";
  return 0;
}

struct Cost {
  double seconds = 0;
  std::int64_t bytes = 0;  // of memory at the peak
};

Cost cost_of(const Tokenizer& tokenizer, std::size_t bytes) {
  const std::string text(bytes, 'a');
  std::ofstream("/proc/self/clear_refs") << "5";  // VmHWM begins anew
  const std::int64_t before = status_bytes("VmRSS");
  const double start = cpu_seconds();
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  const Cost cost{cpu_seconds() - start, status_bytes("VmHWM") - before};
  EXPECT_GT(ids.size(), bytes / 1000);
  std::vector<std::int64_t> uses(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (const std::int32_t id : ids) ++uses.at(static_cast<std::size_t>(id));
  std::int64_t decoded = 0;
  for (std::size_t id = 0; id < uses.size(); ++id) {
    decoded += uses[id] * std::ssize(tokenizer.token_bytes(static_cast<std::int32_t>(id), true));
  }
  EXPECT_GE(decoded, static_cast<std::int64_t>(bytes));
  return cost;
}

/// One letter over and over: one piece for every pattern, the worst case of a merge.
void expect_linear_to_100_megabytes(const Tokenizer& tokenizer) {
  const Cost small = cost_of(tokenizer, kLargeBytes / 10);
  const Cost large = cost_of(tokenizer, kLargeBytes);
  EXPECT_LT(large.seconds, 10 * 3 * small.seconds + 0.1);
  EXPECT_LT(large.bytes, 40 * static_cast<std::int64_t>(kLargeBytes));
  std::cout << "[ figures  ] " << kLargeBytes << " bytes in " << large.seconds << " s of CPU time, "
            << small.seconds << " s for a tenth, " << large.bytes << " bytes of memory\n";
}

TEST(HostileText, OneLetter100MillionTimesWithLlama3Pattern) {
  const std::string file = read_data("bpe-small/tokenizer.model");
  expect_linear_to_100_megabytes(Tokenizer(tokenizer_from_tiktoken(file, 1792 + 256)));
}

TEST(HostileText, OneLetter100MillionTimesWithTwoPatterns) {
  const std::string json = read_data("smollm-small/tokenizer.json");
  expect_linear_to_100_megabytes(Tokenizer(tokenizer_from_hf_json(json, "")));
}

TEST(HostileText, OneLetter100MillionTimesWithoutWords) {
  expect_linear_to_100_megabytes(
      Tokenizer(tokenizer_from_sentencepiece(read_data("spm-small/tokenizer.model"))));
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

TEST(HostileText, WholeWordsBesideLetters) {
  TokenizerSpec spec = tokenizer_from_tiktoken(read_data("bpe-small/tokenizer.model"), 1792 + 256);
  AddedToken& word = spec.added_tokens.emplace_back();
  word.id = static_cast<std::int32_t>(spec.tokens.size());
  word.content = "qz";
  word.special = false;
  word.single_word = true;
  spec.tokens.emplace_back();
  const Tokenizer tokenizer(spec);
  const std::string text = repeat("\xC3\xA9qz", 1'000'000);  // never a word of its own
  const double start = cpu_seconds();
  const auto ids = tokenizer.encode(text);
  EXPECT_LT(cpu_seconds() - start, 20);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), word.id), 0);
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
