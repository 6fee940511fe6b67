#include <gtest/gtest.h>

#include "caravan/core/error.h"
#include "caravan/text/tokenizer.h"
#include "support/expect_error.h"

namespace caravan::text {
namespace {

using test::expect_error;

std::string base64(const std::string& bytes) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    unsigned group = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      const bool there = i + j < bytes.size();
      group = (group << 8) | (there ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      text += i + j > bytes.size() ? '=' : digits[group >> (18 - 6 * j) & 63U];
    }
  }
  return text;
}

/// A file with one line per byte, then `words`.
std::string file_of(const std::vector<std::string>& words) {
  std::string file;
  int rank = 0;
  for (int byte = 0; byte < 256; ++byte) {
    file += base64(std::string(1, static_cast<char>(byte))) + " " + std::to_string(rank++) + "\n";
  }
  for (const std::string& word : words) {
    file += base64(word) + " " + std::to_string(rank++) + "\n";
  }
  return file;
}

TEST(TiktokenFile, ReadsTokensAndNamesSpecials) {
  const TokenizerSpec spec = tokenizer_from_tiktoken(file_of({"ab", "abc", " abcd"}), 259 + 256);
  EXPECT_EQ(spec.kind, TokenizerKind::kTiktoken);
  EXPECT_EQ(spec.tokens.size(), 259U + 256U);
  EXPECT_EQ(spec.tokens[255], "\xFF");
  EXPECT_EQ(spec.tokens[258], " abcd");
  EXPECT_EQ(spec.bos_id, 259);
  EXPECT_EQ(spec.eos_id, 260);
  EXPECT_TRUE(spec.add_bos);
  const Tokenizer tokenizer(spec);
  const std::vector<std::pair<std::string, int>> names = {{"<|begin_of_text|>", 0},
                                                          {"<|end_of_text|>", 1},
                                                          {"<|reserved_special_token_0|>", 2},
                                                          {"<|reserved_special_token_1|>", 3},
                                                          {"<|finetune_right_pad_id|>", 4},
                                                          {"<|reserved_special_token_2|>", 5},
                                                          {"<|start_header_id|>", 6},
                                                          {"<|end_header_id|>", 7},
                                                          {"<|eom_id|>", 8},
                                                          {"<|eot_id|>", 9},
                                                          {"<|python_tag|>", 10},
                                                          {"<|reserved_special_token_3|>", 11},
                                                          {"<|reserved_special_token_247|>", 255}};
  for (const auto& [name, offset] : names) EXPECT_EQ(tokenizer.special_id(name), 259 + offset);
}

TEST(TiktokenFile, AcceptsBlankLinesAndCarriageReturns) {
  std::string file = file_of({"ab"});
  const TokenizerSpec expected = tokenizer_from_tiktoken(file, 300);
  for (std::size_t i = 0; i < file.size(); ++i) {
    if (file[i] == '\n') file.insert(i++, "\r");
  }
  EXPECT_EQ(tokenizer_from_tiktoken("\n" + file + "\n\n", 300), expected);
}

TEST(TiktokenFile, RefusesDamagedLines) {
  const std::string good = file_of({});
  const auto expect_refusal = [&](const std::string& line, const std::string& words) {
    expect_error<InputError>([&] { tokenizer_from_tiktoken(good + line, 300); }, words);
  };
  expect_refusal("YWI=", "line 257: expected \"base64 rank\"");
  expect_refusal("YW 256", "line 257: the token is not base64");
  expect_refusal("Y*I= 256", "line 257: the token is not base64");
  expect_refusal(" 256", "line 257: the token is not base64");
  expect_refusal("YWI= x", "line 257: the rank is not a number");
  expect_refusal("YWI= 256 1", "line 257: the rank is not a number");
  expect_refusal("YWI= 300", "line 257: expected rank 256, found 300");
  expect_refusal("YQ== 256", "tokens 97 and 256 have the same bytes");
}

TEST(TiktokenFile, RefusesAVocabularyThatDoesNotFit) {
  expect_error<InputError>([] { tokenizer_from_tiktoken("", 300); }, "byte 0x00 has no token");
  expect_error<InputError>([] { tokenizer_from_tiktoken("YQ== 0\n", 300); },
                           "byte 0x00 has no token");
  const std::string file = file_of({});
  expect_error<InputError>([&] { tokenizer_from_tiktoken(file, 266); }, "must be 267 to");
  expect_error<InputError>([&] { tokenizer_from_tiktoken(file, -1); }, "but it is -1");
  expect_error<InputError>([&] { tokenizer_from_tiktoken(file, std::int64_t{1} << 40); },
                           "but it is 1099511627776");
  EXPECT_EQ(tokenizer_from_tiktoken(file, 267).tokens.size(), 267U);
}

}  // namespace
}  // namespace caravan::text
