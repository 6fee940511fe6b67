// Ids of 360 strings against tiktoken and the tokenizers library.

#include <gtest/gtest.h>

#include "caravan/text/tokenizer.h"
#include "oracle/text/reference_files.h"

namespace caravan::test {
namespace {

using text::Tokenizer;
using Ids = std::vector<std::int32_t>;

std::string show(const Ids& ids) { return nlohmann::json(ids).dump(); }

/// Ids of every record under `key`, or under `fallback` where `key` is absent (equal ids are stored
/// once).
void expect_vectors(const Tokenizer& tokenizer, bool with_special, const std::string& key,
                    const std::string& fallback = {}) {
  const auto records = read_records("vectors/tokens.jsonl");
  ASSERT_EQ(records.size(), 360U);
  for (const auto& record : records) {
    const auto expected =
        record.at(record.contains(key) || fallback.empty() ? key : fallback).get<Ids>();
    const auto input = record.at("text").get<std::string>();
    const Ids got = with_special ? tokenizer.encode_with_special(input) : tokenizer.encode(input);
    EXPECT_EQ(show(got), show(expected)) << record.at("id") << " " << record.at("cat");
    EXPECT_EQ(tokenizer.decode_bytes(got, true), input) << record.at("id");
    EXPECT_GE(got.size() * tokenizer.max_token_bytes(), input.size()) << record.at("id");
  }
}

std::int64_t bpe_small_vocab() { return 1792 + 256; }

TEST(TokenVectors, TiktokenFileMatchesTiktoken) {
  const std::string file = read_text_file(data_file("bpe-small/tokenizer.model"));
  const Tokenizer tokenizer(text::tokenizer_from_tiktoken(file, bpe_small_vocab()));
  expect_vectors(tokenizer, false, "bpe_small");
}

TEST(TokenVectors, TokenizerJsonMatchesTiktokenWithoutSpecials) {
  for (const std::string variant : {"", ".hf30"}) {
    SCOPED_TRACE(variant);
    const std::string json = read_text_file(data_file("bpe-small/tokenizer" + variant + ".json"));
    const std::string config =
        read_text_file(data_file("bpe-small/tokenizer_config" + variant + ".json"));
    const Tokenizer tokenizer(text::tokenizer_from_hf_json(json, config));
    expect_vectors(tokenizer, false, "bpe_small");
    EXPECT_TRUE(tokenizer.spec().add_bos);
    EXPECT_EQ(tokenizer.spec().bos_id, 1792);
    EXPECT_EQ(tokenizer.spec().eos_id, variant.empty() ? 1792 + 9 : 1792 + 1);
  }
}

TEST(TokenVectors, TokenizerJsonMatchesTokenizersWithSpecials) {
  const std::string json = read_text_file(data_file("bpe-small/tokenizer.json"));
  expect_vectors(Tokenizer(text::tokenizer_from_hf_json(json, "")), true, "bpe_small_hf",
                 "bpe_small");
}

TEST(TokenVectors, GgufOfTheSameVocabularyMatchesTiktoken) {
  const auto path = std::filesystem::path(CARAVAN_TEST_DATA) /
                    "checkpoints/tiny-llama31-gguf/tiny-llama31-gguf-F16.gguf";
  const Tokenizer tokenizer(text::tokenizer_from_gguf(read_gguf_text(path).tokenizer));
  expect_vectors(tokenizer, false, "bpe_small");
  expect_vectors(tokenizer, true, "bpe_small_hf", "bpe_small");
  EXPECT_TRUE(tokenizer.spec().add_bos);
}

TEST(TokenVectors, SmolLmSmallMatchesTokenizersWithSpecials) {
  const std::string json = read_text_file(data_file("smollm-small/tokenizer.json"));
  const std::string config = read_text_file(data_file("smollm-small/tokenizer_config.json"));
  const Tokenizer tokenizer(text::tokenizer_from_hf_json(json, config));
  expect_vectors(tokenizer, true, "smollm_small");
  EXPECT_FALSE(tokenizer.spec().add_bos);
  EXPECT_EQ(tokenizer.spec().bos_id, 1);
  EXPECT_EQ(tokenizer.spec().eos_id, 2);
}

TEST(TokenVectors, Llama3FileMatchesTiktoken) {
  CARAVAN_NEED_MODEL_FILE(path, kLlama3Model);
  const Tokenizer tokenizer(text::tokenizer_from_tiktoken(read_text_file(path), 128256));
  expect_vectors(tokenizer, false, "llama3");
  EXPECT_EQ(tokenizer.special_id("<|begin_of_text|>"), 128000);
  EXPECT_EQ(tokenizer.special_id("<|eom_id|>"), 128008);
  EXPECT_EQ(tokenizer.special_id("<|eot_id|>"), 128009);
  EXPECT_EQ(tokenizer.special_id("<|reserved_special_token_247|>"), 128255);
}

TEST(TokenVectors, SmolLm2GgufMatchesTokenizers) {
  CARAVAN_NEED_MODEL_FILE(path, kSmolLm2Gguf);
  const Tokenizer tokenizer(text::tokenizer_from_gguf(read_gguf_text(path).tokenizer));
  const auto records = read_records("vectors/tokens.jsonl");
  // The vocabulary lacks some bytes, so that texts do not all come back from their ids.
  for (const auto& record : records) {
    const auto input = record.at("text").get<std::string>();
    const auto& plain = record.contains("smollm2_plain") ? "smollm2_plain" : "smollm2";
    EXPECT_EQ(show(tokenizer.encode(input)), record.at(plain).dump()) << record.at("id");
    EXPECT_EQ(show(tokenizer.encode_with_special(input)), record.at("smollm2").dump())
        << record.at("id");
  }
}

}  // namespace
}  // namespace caravan::test
