// Ids of 360 strings against tiktoken and the tokenizers library.

#include <gtest/gtest.h>

#include "caravan/text/tokenizer.h"
#include "oracle/text/reference_files.h"

namespace caravan::test {
namespace {

using text::Tokenizer;
using Ids = std::vector<std::int32_t>;

std::string show(const Ids& ids) { return nlohmann::json(ids).dump(); }

/// What decoding gives back: behind a space prefix, and with spaces for U+2581, where the tokenizer
/// is of Llama 2's kind.
std::string decoded_form(const Tokenizer& tokenizer, const std::string& input) {
  if (tokenizer.spec().kind != text::TokenizerKind::kSentencePiece || input.empty()) return input;
  std::string expected = " ";
  const std::string symbol = "\xE2\x96\x81";
  for (std::size_t i = 0; i < input.size();) {
    const bool is_symbol = input.compare(i, symbol.size(), symbol) == 0;
    expected += is_symbol ? ' ' : input[i];
    i += is_symbol ? symbol.size() : 1;
  }
  return expected;
}

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
    if (!with_special || tokenizer.spec().kind != text::TokenizerKind::kSentencePiece) {
      EXPECT_EQ(tokenizer.decode_bytes(got, true), decoded_form(tokenizer, input))
          << record.at("id");
    }
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

TEST(TokenVectors, SentencePieceFileMatchesSentencePiece) {
  const Tokenizer tokenizer(
      text::tokenizer_from_sentencepiece(read_text_file(data_file("spm-small/tokenizer.model"))));
  expect_vectors(tokenizer, false, "spm_small");
  EXPECT_EQ(tokenizer.spec().space_prefix, text::SpacePrefix::kEverySegment);
  EXPECT_EQ(tokenizer.spec().unknown_id, 0);
  EXPECT_EQ(tokenizer.spec().bos_id, 1);
  EXPECT_EQ(tokenizer.spec().eos_id, 2);
  EXPECT_TRUE(tokenizer.spec().add_bos);
}

TEST(TokenVectors, TokenizerJsonOfLlama2KindMatchesSentencePieceAndTokenizers) {
  const Tokenizer tokenizer(
      text::tokenizer_from_hf_json(read_text_file(data_file("spm-small/tokenizer.json")),
                                   read_text_file(data_file("spm-small/tokenizer_config.json"))));
  expect_vectors(tokenizer, false, "spm_small");
  expect_vectors(tokenizer, true, "spm_small_hf", "spm_small");
  EXPECT_EQ(tokenizer.spec().bos_id, 1);
  EXPECT_EQ(tokenizer.spec().eos_id, 2);
  EXPECT_TRUE(tokenizer.spec().add_bos);
}

TEST(TokenVectors, FormsOfSpaceRulesMatchTokenizers) {
  const auto base = nlohmann::json::parse(read_text_file(data_file("spm-small/tokenizer.json")));
  int variants = 0;
  for (const auto& record : read_records("vectors/space_rules.jsonl")) {
    SCOPED_TRACE(record.at("variant"));
    ++variants;
    nlohmann::json file = base;
    file.update(record.at("parts"));
    const Tokenizer tokenizer(text::tokenizer_from_hf_json(file.dump(), ""));
    for (const auto& example : record.at("cases")) {
      const auto input = example.at("text").get<std::string>();
      EXPECT_EQ(show(tokenizer.encode_with_special(input)), example.at("ids").dump())
          << "\"" << input << "\"";
    }
  }
  EXPECT_EQ(variants, 17);
}

TEST(TokenVectors, OptionsOfAddedTokensMatchTokenizers) {
  int variants = 0;
  for (const auto& record : read_records("vectors/added_options.jsonl")) {
    ++variants;
    const auto name = record.at("tokenizer").get<std::string>();
    auto parts = record.at("parts");
    SCOPED_TRACE(name + " " + parts.dump());
    auto file = nlohmann::json::parse(read_text_file(data_file(name + "/tokenizer.json")));
    for (const auto& added : parts.at("added")) file["added_tokens"].push_back(added);
    parts.erase("added");
    file.update(parts);
    const Tokenizer tokenizer(text::tokenizer_from_hf_json(file.dump(), ""));
    for (const auto& example : record.at("cases")) {
      const auto input = example.at("text").get<std::string>();
      EXPECT_EQ(show(tokenizer.encode_with_special(input)), example.at("ids").dump())
          << nlohmann::json(input);
    }
  }
  EXPECT_EQ(variants, 32);
}

TEST(TokenVectors, GgufOfLlama2KindMatchesSentencePiece) {
  // The GGUF fields that a converter makes of this model.
  const auto model =
      text::tokenizer_from_sentencepiece(read_text_file(data_file("spm-small/tokenizer.model")));
  const auto json = nlohmann::json::parse(read_text_file(data_file("spm-small/tokenizer.json")));
  text::GgufTokenizer gguf;
  gguf.model = "llama";
  gguf.pre = "default";
  gguf.tokens.resize(model.tokens.size());
  for (const auto& [name, id] : json.at("model").at("vocab").items()) {
    gguf.tokens.at(id.get<std::size_t>()) = name;
  }
  gguf.scores = model.scores;
  gguf.token_types.assign(model.tokens.size(), 1);
  for (const std::int32_t id : model.byte_ids)
    gguf.token_types.at(static_cast<std::size_t>(id)) = 6;
  gguf.token_types[0] = 2;
  gguf.token_types[1] = gguf.token_types[2] = 3;
  expect_vectors(Tokenizer(text::tokenizer_from_gguf(gguf)), false, "spm_small");
  gguf.token_types.clear();
  const Tokenizer tokenizer(text::tokenizer_from_gguf(gguf));
  expect_vectors(tokenizer, false, "spm_small");
  expect_vectors(tokenizer, true, "spm_small_hf", "spm_small");
  EXPECT_EQ(tokenizer.spec(), text::tokenizer_from_gguf(gguf));
  EXPECT_EQ(tokenizer.spec().bos_id, 1);
  EXPECT_TRUE(tokenizer.spec().add_bos);
}

TEST(TokenVectors, Llama2FileMatchesSentencePiece) {
  CARAVAN_NEED_MODEL_FILE(path, kLlama2Model);
  const Tokenizer tokenizer(text::tokenizer_from_sentencepiece(read_text_file(path)));
  expect_vectors(tokenizer, false, "llama2");
  EXPECT_EQ(show(tokenizer.encode("   ")), "[268]");
  EXPECT_EQ(show(tokenizer.encode("\n\n")), "[29871,13,13]");
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
