#include <fmt/format.h>
#include <gtest/gtest.h>

#include "caravan/core/error.h"
#include "caravan/text/tokenizer.h"
#include "support/expect_error.h"

namespace caravan::text {
namespace {

using test::expect_error;
using Ids = std::vector<std::int32_t>;

/// a, b, the space and the newline in the byte alphabet, two joined tokens, and one of each other
/// type.
GgufTokenizer small_source() {
  GgufTokenizer source;
  source.model = "gpt2";
  source.pre = "llama-bpe";
  source.tokens = {"a",
                   "b",
                   "\xC4\xA0",
                   "\xC4\x8A",
                   "ab",
                   "\xC4\xA0"
                   "ab",
                   "<ctl>",
                   "[user]",
                   "[unused]",
                   "<unk>"};
  source.token_types = {1, 1, 1, 1, 1, 1, 3, 4, 5, 2};
  source.merges = {"a b", "\xC4\xA0 ab"};
  source.bos_id = 6;
  source.eos_id = 6;
  source.unknown_id = 9;
  return source;
}

TEST(GgufTokenizer, ReadsTokensMergesAndTypes) {
  const TokenizerSpec spec = tokenizer_from_gguf(small_source());
  EXPECT_EQ(spec.kind, TokenizerKind::kBpe);
  EXPECT_EQ(spec.tokens,
            (std::vector<std::string>{"a", "b", " ", "\n", "ab", " ab", "", "[user]", "", ""}));
  EXPECT_EQ(spec.merges, (std::vector<std::pair<std::int32_t, std::int32_t>>{{0, 1}, {2, 4}}));
  EXPECT_EQ(spec.added_tokens, (std::vector<AddedToken>{
                                   {6, "<ctl>", true}, {7, "[user]", false}, {9, "<unk>", true}}));
  EXPECT_EQ(spec.bos_id, 6);
  EXPECT_EQ(spec.unknown_id, 9);
  const Tokenizer tokenizer(spec);
  EXPECT_EQ(tokenizer.encode("ab ab[user]\n"), (Ids{4, 5, 7, 3}));
}

TEST(GgufTokenizer, PreTokenizerDecidesPatternsAndShortCut) {
  GgufTokenizer source = small_source();
  for (const char* name : {"llama-bpe", "llama3", "llama-v3", "falcon3", "tekken"}) {
    source.pre = name;
    const TokenizerSpec spec = tokenizer_from_gguf(source);
    EXPECT_TRUE(spec.ignore_merges) << name;
    EXPECT_TRUE(spec.add_bos) << name;
    EXPECT_EQ(spec.split_patterns.size(), 1U) << name;
  }
  for (const char* name :
       {"smaug-bpe", "dbrx", "gpt-2", "phi-2", "mpt", "olmo", "jais", "gigachat", "mellum",
        "trillion", "qwen2", "megrez", "seed-coder", "bloom", "poro-chat"}) {
    source.pre = name;
    const TokenizerSpec spec = tokenizer_from_gguf(source);
    EXPECT_FALSE(spec.ignore_merges) << name;
    EXPECT_FALSE(spec.add_bos) << name;
    EXPECT_EQ(spec.split_patterns.size(), 1U) << name;
  }
  for (const char* name : {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone",
                           "minerva-7b", "viking"}) {
    source.pre = name;
    EXPECT_EQ(tokenizer_from_gguf(source).split_patterns.size(), 2U) << name;
  }
  for (const char* name : {"", "default"}) {
    source.pre = name;
    EXPECT_EQ(tokenizer_from_gguf(source).split_patterns.size(), 4U) << name;
  }
}

TEST(GgufTokenizer, FlagsOfTheFileWin) {
  GgufTokenizer source = small_source();
  source.add_bos = false;
  EXPECT_FALSE(tokenizer_from_gguf(source).add_bos);
  source.pre = "smollm";
  source.add_bos = true;
  EXPECT_TRUE(tokenizer_from_gguf(source).add_bos);
  source = small_source();
  source.bos_id.reset();
  EXPECT_FALSE(tokenizer_from_gguf(source).add_bos);
}

TEST(GgufTokenizer, WithoutTypesTheNamedIdsAreControl) {
  GgufTokenizer source = small_source();
  source.token_types.clear();
  const TokenizerSpec spec = tokenizer_from_gguf(source);
  EXPECT_EQ(spec.added_tokens, (std::vector<AddedToken>{{6, "<ctl>", true}}));
  EXPECT_EQ(spec.tokens[8], "[unused]");
}

TEST(GgufTokenizer, RefusesWhatItDoesNotKnow) {
  const auto expect_refusal = [](const GgufTokenizer& source, const std::string& words) {
    expect_error<InputError>([&] { tokenizer_from_gguf(source); }, words);
  };
  GgufTokenizer source = small_source();
  source.model = "bert";
  expect_refusal(source, "tokenizer.ggml.model \"bert\" is not supported");
  source = small_source();
  source.pre = "gpt-4o";
  expect_refusal(source,
                 "tokenizer.ggml.pre \"gpt-4o\" is not supported (supported: llama-bpe, llama3, ");
  source = small_source();
  source.tokens.clear();
  expect_refusal(source, "tokenizer.ggml.tokens is missing or empty");
}

TEST(GgufTokenizer, RefusesDamagedData) {
  const auto expect_refusal = [](const GgufTokenizer& source, const std::string& words) {
    expect_error<InputError>([&] { tokenizer_from_gguf(source); }, words);
  };
  GgufTokenizer source = small_source();
  source.token_types.pop_back();
  expect_refusal(source, "tokenizer.ggml.token_type has 9 entries for 10 tokens");
  source = small_source();
  source.token_types[0] = 7;
  expect_refusal(source, "tokenizer.ggml.token_type[0] is 7; expected 1 to 6");
  for (const char* merge : {"ab", "", " a"}) {
    source = small_source();
    source.merges = {merge};
    expect_refusal(source, "is not two tokens with a space between");
  }
  source = small_source();
  source.merges = {"a x"};
  expect_refusal(source, "tokenizer.ggml.merges[0]: \"x\" is not in the vocabulary");
  source.merges = {"b a"};
  expect_refusal(source, "merge 0 joins ids 1 and 0 to bytes that are not an ordinary token");
  source = small_source();
  source.tokens[1] = "a";
  source.merges.clear();
  expect_refusal(source, "tokens 0 and 1 have the same bytes");
  source = small_source();
  source.eos_id = 10;
  expect_refusal(source, "eos_id 10 is outside 0 to 9");
}

/// Llama 2's kind: <unk>, <s>, </s>, the bytes, and a few pieces from id 259 on.
GgufTokenizer small_llama_source() {
  GgufTokenizer source;
  source.model = "llama";
  source.tokens = {"<unk>", "<s>", "</s>"};
  source.token_types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    source.tokens.push_back(fmt::format("<0x{:02X}>", byte));
    source.token_types.push_back(6);
  }
  for (const char* name : {"\xE2\x96\x81", "a", "b", "ab"}) {
    source.tokens.emplace_back(name);
    source.token_types.push_back(1);
  }
  source.tokens.emplace_back("[user]");
  source.token_types.push_back(4);
  source.scores.assign(source.tokens.size(), 0);
  return source;
}

TEST(GgufTokenizer, ReadsLlama2Kind) {
  GgufTokenizer source = small_llama_source();
  const Tokenizer tokenizer(tokenizer_from_gguf(source));
  EXPECT_EQ(tokenizer.encode("ab z"), (Ids{259, 262, 259, 3 + 'z'}));
  EXPECT_EQ(tokenizer.encode("a[user]b"), (Ids{259, 260, 263, 259, 261}));
  EXPECT_EQ(tokenizer.encode_with_special("</s>"), (Ids{2}));
  EXPECT_EQ(tokenizer.spec().bos_id, 1);
  EXPECT_EQ(tokenizer.spec().eos_id, 2);
  EXPECT_TRUE(tokenizer.spec().add_bos);
  source.add_space_prefix = false;
  source.add_bos = false;
  source.eos_id = 0;
  const TokenizerSpec spec = tokenizer_from_gguf(source);
  EXPECT_EQ(spec.space_prefix, SpacePrefix::kNone);
  EXPECT_FALSE(spec.add_bos);
  EXPECT_EQ(spec.eos_id, 0);
}

TEST(GgufTokenizer, RefusesDamagedLlama2Kind) {
  GgufTokenizer source = small_llama_source();
  source.scores.pop_back();
  expect_error<InputError>([&] { tokenizer_from_gguf(source); },
                           "tokenizer.ggml.scores has 263 entries for 264 tokens");
  source = small_llama_source();
  source.tokens[3] = "<0x0G>";
  expect_error<InputError>([&] { tokenizer_from_gguf(source); },
                           "tokenizer.ggml.tokens: byte token 3 is called \"<0x0G>\"");
  source.token_types[3] = 5;
  expect_error<InputError>([&] { tokenizer_from_gguf(source); }, "byte 0x00 has id -1");
}

}  // namespace
}  // namespace caravan::text
