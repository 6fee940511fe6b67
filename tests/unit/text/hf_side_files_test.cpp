// Files beside a tokenizer in a Hugging Face folder.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "caravan/core/error.h"
#include "caravan/text/tokenizer.h"
#include "support/expect_error.h"
#include "unit/text/protobuf_bytes.h"

namespace caravan::text {
namespace {

using nlohmann::json;
using test::expect_error;
using Ids = std::vector<std::int32_t>;

/// a, b, <s> (id 2, added), [INST] (id 3, in the vocabulary only).
json small_file() {
  return {{"added_tokens", {{{"id", 2}, {"content", "<s>"}, {"special", true}}}},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"model",
           {{"type", "BPE"},
            {"vocab", {{"a", 0}, {"b", 1}, {"<s>", 2}, {"[INST]", 3}}},
            {"merges", json::array()}}}};
}

/// A SentencePiece model of bytes and the space.
std::string byte_model() {
  std::string model = test::piece("<unk>", 0, test::kUnknown) +
                      test::piece("<s>", 0, test::kControl) +
                      test::piece("</s>", 0, test::kControl);
  for (const char* digits = "0123456789ABCDEF"; const char high : std::string(digits)) {
    for (const char low : std::string(digits)) {
      model += test::piece(std::string("<0x") + high + low + ">", 0, test::kByte);
    }
  }
  model += test::piece("\xE2\x96\x81", 0, test::kNormal) +
           test::bytes_field(2, test::number_field(3, 2) + test::number_field(35, 1)) +
           test::bytes_field(3, test::number_field(4, 0));
  return model;
}

TokenizerSpec import(const TokenizerSideFiles& files) {
  return tokenizer_from_hf_json(small_file().dump(), files);
}

std::string config_with(const json& decoder) {
  return json{{"added_tokens_decoder", decoder}}.dump();
}

const AddedToken kBos = {2, "<s>", true};

TEST(HfSideFiles, DecoderOfTheConfigAddsTokens) {
  TokenizerSideFiles files;
  files.tokenizer_config = config_with({{"10", {{"content", "<x>"}, {"special", true}}},
                                        {"5", {{"content", "word"}}},
                                        {"3", {{"content", "[INST]"}, {"special", true}}},
                                        {"2", {{"content", "<s>"}, {"special", true}}}});
  files.added_tokens = R"({"ignored": 7})";  // the older place of the same
  const TokenizerSpec spec = import(files);
  EXPECT_EQ(
      spec.added_tokens,
      (std::vector<AddedToken>{kBos, {3, "[INST]", true}, {5, "word", false}, {10, "<x>", true}}));
  EXPECT_EQ(spec.tokens, (std::vector<std::string>{"a", "b", "", "", "", "", "", "", "", "", ""}));
  const Tokenizer tokenizer(spec);
  EXPECT_EQ(tokenizer.encode("awordb"), (Ids{0, 5, 1}));
  EXPECT_EQ(tokenizer.decode_bytes(Ids{0, 5, 10, 1}), "awordb");
}

TEST(HfSideFiles, SpecialInOneFileIsSpecial) {
  TokenizerSideFiles files;
  files.tokenizer_config = config_with({{"5", {{"content", "word"}, {"special", false}}},
                                        {"2", {{"content", "<s>"}, {"special", false}}}});
  EXPECT_EQ(import(files).added_tokens, (std::vector<AddedToken>{kBos, {5, "word", false}}));
  files.special_tokens_map = R"({"additional_special_tokens": ["word", {"content": "unheard"}]})";
  const TokenizerSpec spec = import(files);
  EXPECT_EQ(spec.added_tokens, (std::vector<AddedToken>{kBos, {5, "word", true}}));
  EXPECT_EQ(spec.tokens[5], "");
}

TEST(HfSideFiles, OlderFilesAddTokens) {
  TokenizerSideFiles files;
  files.added_tokens = R"({"<pad>": 4, "word": 5})";
  files.special_tokens_map = R"({"pad_token": {"content": "<pad>"}, "bos_token": "<s>",
                                 "eos_token": "<pad>", "unk_token": null})";
  const TokenizerSpec spec = import(files);
  EXPECT_EQ(spec.added_tokens,
            (std::vector<AddedToken>{kBos, {4, "<pad>", true}, {5, "word", false}}));
  EXPECT_EQ(spec.bos_id, 2);
  EXPECT_EQ(spec.eos_id, 4);
}

TEST(HfSideFiles, TheConfigNamesIdsBeforeTheMap) {
  TokenizerSideFiles files;
  files.tokenizer_config = R"({"bos_token": "<s>", "eos_token": {"content": "[INST]"}})";
  files.special_tokens_map = R"({"bos_token": "a", "eos_token": "b"})";
  EXPECT_EQ(import(files).bos_id, 2);
  EXPECT_EQ(import(files).eos_id, 3);
}

TEST(HfSideFiles, AWordOfTheVocabularyStaysOrdinaryUnlessItIsListed) {
  TokenizerSideFiles files;
  files.special_tokens_map = R"({"pad_token": "a"})";
  EXPECT_EQ(Tokenizer(import(files)).encode("ab"), (Ids{0, 1}));
}

TEST(HfSideFiles, JoinSentencePieceModels) {
  TokenizerSideFiles files;
  files.tokenizer_config =
      R"({"eos_token": "<|im_end|>", "add_bos_token": false, "tokenizer_class": "LlamaTokenizer",
          "added_tokens_decoder": {"0": {"content": "<unk>", "special": true},
                                   "261": {"content": "<|im_end|>", "special": true},
                                   "260": {"content": "<tool>"}}})";
  const Tokenizer tokenizer(tokenizer_from_sentencepiece(byte_model(), files));
  EXPECT_EQ(tokenizer.encode("<tool>x"), (Ids{260, 259, 3 + 'x'}));
  EXPECT_EQ(tokenizer.special_id("<|im_end|>"), 261);
  EXPECT_EQ(tokenizer.spec().bos_id, 1);
  EXPECT_EQ(tokenizer.spec().eos_id, 261);
  EXPECT_FALSE(tokenizer.spec().add_bos);
  EXPECT_EQ(tokenizer.spec().scores.size(), 262U);
}

TEST(HfSideFiles, SaysWhichSettingsAreNotFollowed) {
  const auto warnings = [&](const json& config) {
    testing::internal::CaptureStderr();
    TokenizerSideFiles files;
    files.tokenizer_config = config.dump();
    tokenizer_from_sentencepiece(byte_model(), files);
    return testing::internal::GetCapturedStderr();
  };
  const auto says = [&](const json& config, const std::string& words) {
    const std::string log = warnings(config);
    EXPECT_NE(log.find(words), std::string::npos) << log;
  };
  says({{"legacy", false}}, "legacy = false is not followed");
  says({{"add_prefix_space", false}}, "add_prefix_space = false is not followed");
  says({{"tokenizer_class", "LlamaTokenizer"}, {"add_eos_token", true}}, "are not ended by EOS");
  EXPECT_EQ(warnings({{"legacy", true},
                      {"add_prefix_space", true},
                      {"tokenizer_class", "LlamaTokenizer"},
                      {"add_eos_token", false}}),
            "");
}

TEST(HfSideFiles, RefusesContradictionsAndDamage) {
  const auto refuse = [](const TokenizerSideFiles& files, const std::string& words) {
    expect_error<InputError>([&] { import(files); }, words);
  };
  const auto refuse_decoder = [&](const json& decoder, const std::string& words) {
    refuse({config_with(decoder), {}, {}}, words);
  };
  refuse_decoder(
      {{"2", {{"content", "<t>"}, {"special", true}}}},
      "added_tokens_decoder[\"2\"]: id 2 belongs to \"<t>\" here and to \"<s>\" elsewhere");
  refuse_decoder({{"7", {{"content", "<s>"}}}}, "\"<s>\" has id 7 here and id 2 elsewhere");
  refuse_decoder({{"x", {{"content", "y"}}}}, "expected an id from 0 to 4194303, found \"x\"");
  refuse_decoder({{"-1", {{"content", "y"}}}}, "found \"-1\"");
  refuse_decoder({{"05", {{"content", "y"}}}, {"5", {{"content", "y"}}}}, "id 5 is listed twice");
  refuse_decoder({{"5", {{"special", true}}}}, "\"content\" is missing");
  refuse_decoder({{"5", {{"content", ""}}}}, "the content is empty");
  refuse_decoder(json::array({1}), "added_tokens_decoder must be an object, found an array");
  refuse({{}, "[]", {}}, "added_tokens.json must be a JSON object, found an array");
  refuse({{}, R"({"x": -5})", {}}, "must be an id from 0 to 4194303, found -5");
  refuse({{}, "{", {}}, "added_tokens.json: not valid JSON");
  refuse({{}, {}, R"({"bos_token": 3})"}, "special_tokens_map.json: bos_token must be a string");
  refuse({{}, {}, "[]"}, "special_tokens_map.json must be a JSON object");
}

}  // namespace
}  // namespace caravan::text
