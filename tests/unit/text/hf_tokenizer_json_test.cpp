#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <map>

#include "caravan/core/error.h"
#include "caravan/text/tokenizer.h"
#include "support/expect_error.h"

namespace caravan::text {
namespace {

using nlohmann::json;
using test::expect_error;
using Ids = std::vector<std::int32_t>;

/// A small complete file: letters a to c, space, digits, two joined tokens, one control token.
json small_file() {
  return json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
    "added_tokens": [{"id": 9, "content": "<bos>", "special": true, "normalized": false,
                      "single_word": false, "lstrip": false, "rstrip": false}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "byte_fallback": false,
              "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
              "vocab": {"a": 0, "b": 1, "c": 2, "Ġ": 3, "1": 4, "2": 5, "ab": 6, "Ġab": 7, "12": 8},
              "merges": ["a b", "Ġ ab", "1 2"]}
  })");
}

TokenizerSpec import(const json& file, const std::string& config = {}) {
  return tokenizer_from_hf_json(file.dump(), config);
}

/// Expects that small_file() with `value` at `pointer` is refused with `words`.
void expect_refusal(const std::string& pointer, const json& value, const std::string& words) {
  json file = small_file();
  file[json::json_pointer(pointer)] = value;
  expect_error<InputError>([&] { import(file); }, words);
}

json split(const std::string& regex) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", regex}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}
json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", use_regex}};
}
/// A Sequence pre-tokenizer. (A vector, because json takes a list in braces for what it resembles.)
json sequence(const std::vector<json>& parts) {
  return {{"type", "Sequence"}, {"pretokenizers", parts}};
}
json template_of(const std::vector<json>& single) {
  return {{"type", "TemplateProcessing"}, {"single", single}};
}
const json kText = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
json token_item(const std::string& content) {
  return {{"SpecialToken", {{"id", content}, {"type_id", 0}}}};
}

TEST(HfTokenizerJson, ReadsASmallFile) {
  const TokenizerSpec spec = import(small_file());
  EXPECT_EQ(spec.kind, TokenizerKind::kBpe);
  EXPECT_EQ(spec.tokens,
            (std::vector<std::string>{"a", "b", "c", " ", "1", "2", "ab", " ab", "12", ""}));
  EXPECT_EQ(spec.merges,
            (std::vector<std::pair<std::int32_t, std::int32_t>>{{0, 1}, {3, 6}, {4, 5}}));
  EXPECT_EQ(spec.added_tokens, (std::vector<AddedToken>{{9, "<bos>", true}}));
  EXPECT_FALSE(spec.ignore_merges);
  EXPECT_FALSE(spec.add_bos);
  EXPECT_FALSE(spec.bos_id);
  EXPECT_EQ(Tokenizer(spec).encode("ab abc 12"), (Ids{6, 7, 2, 3, 8}));
}

TEST(HfTokenizerJson, ReadsMergesAsPairs) {
  json file = small_file();
  file["model"]["merges"] = json::parse(R"([["a", "b"], ["Ġ", "ab"], ["1", "2"]])");
  EXPECT_EQ(import(file), import(small_file()));
}

TEST(HfTokenizerJson, AcceptsWhatOlderAndNewerFilesLeaveOut) {
  json file = small_file();
  for (const char* key :
       {"version", "truncation", "padding", "normalizer", "post_processor", "decoder"}) {
    file.erase(key);
  }
  for (const char* key : {"type", "dropout", "unk_token", "byte_fallback", "fuse_unk"}) {
    file["model"].erase(key);
  }
  file["model"]["dropout"] = 0.0;
  file["model"]["end_of_word_suffix"] = "";
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
  EXPECT_EQ(import(file), import(small_file()));
}

TEST(HfTokenizerJson, ReadsPreTokenizers) {
  json file = small_file();
  const auto pieces = [&](const json& pre_tokenizer) {
    file["pre_tokenizer"] = pre_tokenizer;
    return import(file).split_patterns;
  };
  EXPECT_EQ(pieces(byte_level(false)), std::vector<std::string>());
  EXPECT_EQ(pieces(sequence({split("a+|b"), byte_level(false)})),
            (std::vector<std::string>{"a+|b"}));
  EXPECT_EQ(
      pieces(sequence({{{"type", "Digits"}, {"individual_digits", true}}, byte_level(false)})),
      (std::vector<std::string>{R"(\p{N})"}));
  EXPECT_EQ(pieces(sequence({{{"type", "Digits"}}, byte_level(false)})),
            (std::vector<std::string>{R"(\p{N}+)"}));
  EXPECT_EQ(pieces(sequence({sequence({split("a")}), sequence({split("b"), byte_level(false)})})),
            (std::vector<std::string>{"a", "b"}));
  json literal = split("");
  literal["pattern"] = {{"String", "a.[b"}};
  EXPECT_EQ(pieces(sequence({literal, byte_level(false)})),
            (std::vector<std::string>{R"(a\.\[b)"}));
  EXPECT_EQ(pieces(byte_level(true)).size(), 1U);
}

// Some converters of tiktoken files write the pattern as what is to be kept.
TEST(HfTokenizerJson, DroppingWhatIsBetweenMatchesOfACompletePatternIsIsolated) {
  const std::string pattern = import(small_file()).split_patterns.at(0);  // that of ByteLevel
  json file = small_file();
  file["pre_tokenizer"] = sequence({split(pattern), byte_level(false)});
  const TokenizerSpec isolated = import(file);
  file["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed";
  file["pre_tokenizer"]["pretokenizers"][0]["invert"] = true;
  EXPECT_EQ(import(file), isolated);
}

TEST(HfTokenizerJson, DigitsAreSplitBeforeWords) {
  json file = small_file();
  file["pre_tokenizer"] =
      sequence({{{"type", "Digits"}, {"individual_digits", true}}, byte_level(true)});
  EXPECT_EQ(Tokenizer(import(file)).encode("12 1"), (Ids{4, 5, 3, 4}));
}

TEST(HfTokenizerJson, ReadsTheTokenInFrontOfTexts) {
  json file = small_file();
  file["post_processor"] = template_of({token_item("<bos>"), kText});
  TokenizerSpec spec = import(file);
  EXPECT_TRUE(spec.add_bos);
  EXPECT_EQ(spec.bos_id, 9);
  file["post_processor"] = {
      {"type", "Sequence"},
      {"processors", json::array({byte_level(true), file["post_processor"]})}};
  EXPECT_EQ(import(file), spec);
  file["post_processor"] = template_of({kText});
  EXPECT_FALSE(import(file).add_bos);
}

TEST(HfTokenizerJson, ReadsTheConfigurationBesideIt) {
  const auto with_config = [](const std::string& config) { return import(small_file(), config); };
  TokenizerSpec spec = with_config(R"({"bos_token": "<bos>", "eos_token": {"content": "ab"}})");
  EXPECT_EQ(spec.bos_id, 9);
  EXPECT_EQ(spec.eos_id, 6);
  EXPECT_FALSE(spec.add_bos);
  spec = with_config(R"({"bos_token": "<bos>", "add_bos_token": true,
                         "tokenizer_class": "LlamaTokenizerFast"})");
  EXPECT_TRUE(spec.add_bos);
  spec = with_config(R"({"bos_token": "<bos>", "add_bos_token": true,
                         "tokenizer_class": "GPT2Tokenizer"})");
  EXPECT_FALSE(spec.add_bos);
  EXPECT_FALSE(with_config(R"({"bos_token": "<none>", "eos_token": null})").bos_id);
  expect_error<InputError>([&] { with_config("{"); }, "tokenizer_config.json: not valid JSON");
  expect_error<InputError>([&] { with_config(R"({"bos_token": 7})"); },
                           "tokenizer_config.json: bos_token must be a string, found an integer");
}

TEST(HfTokenizerJson, AddedTokensThatAreNotSpecialComeFromText) {
  json file = small_file();
  file["added_tokens"].push_back({{"id", 10}, {"content", "Ġ <x>"}, {"special", false}});
  const TokenizerSpec spec = import(file);
  const Tokenizer tokenizer(spec);
  EXPECT_EQ(tokenizer.encode("aĠ <x>b"), (Ids{0, 10, 1}));
  EXPECT_EQ(tokenizer.decode_bytes(Ids{10}), "Ġ <x>");
}

TEST(HfTokenizerJson, RefusesUnsupportedPartsByName) {
  expect_refusal("/model/type", "WordPiece", "model: type \"WordPiece\" is not supported");
  expect_refusal("/model/dropout", 0.1, "BPE with dropout is not supported");
  expect_refusal("/model/end_of_word_suffix", "</w>", "end_of_word_suffix \"</w>\"");
  expect_refusal("/model/continuing_subword_prefix", "##", "continuing_subword_prefix \"##\"");
  expect_refusal("/normalizer", {{"type", "NFC"}}, "normalizer: \"NFC\" is not supported");
  expect_refusal("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Prepend"}}}}},
                 "normalizer: \"Prepend\" with these settings is not supported");
  expect_refusal("/pre_tokenizer", nullptr, "pre_tokenizer: there is none");
  expect_refusal("/pre_tokenizer", {{"type", "BertPreTokenizer"}},
                 "pre-tokenizer \"BertPreTokenizer\" is not supported");
  expect_refusal("/decoder", {{"type", "WordPiece"}}, "decoder: \"WordPiece\" is not supported");
  expect_refusal("/post_processor", {{"type", "BertProcessing"}},
                 "post-processor \"BertProcessing\" is not supported");
}

TEST(HfTokenizerJson, KeepsTheOptionsOfAddedTokens) {
  const std::map<std::string, bool AddedToken::*> options = {
      {"single_word", &AddedToken::single_word},
      {"lstrip", &AddedToken::lstrip},
      {"rstrip", &AddedToken::rstrip}};
  for (const auto& [name, option] : options) {
    for (const bool special : {true, false}) {
      json file = small_file();
      file["added_tokens"][0]["special"] = special;
      TokenizerSpec expected = import(file);
      EXPECT_FALSE(expected.added_tokens[0].*option);
      expected.added_tokens[0].*option = true;
      file["added_tokens"][0][name] = true;
      EXPECT_EQ(import(file), expected) << name;
    }
  }
}

TEST(HfTokenizerJson, RefusesSpaceRulesThatItDoesNotBuild) {
  const json metaspace = {{"type", "Metaspace"}};
  const auto refuse_pre = [](const json& pre_tokenizer, const std::string& words) {
    expect_refusal("/pre_tokenizer", pre_tokenizer, words);
  };
  expect_refusal("/model/byte_fallback", true,
                 "pre_tokenizer: \"ByteLevel\" is not supported here");
  refuse_pre({{"type", "Metaspace"}, {"replacement", "_"}}, "with the replacement \"_\"");
  refuse_pre({{"type", "Metaspace"}, {"prepend_scheme", "last"}}, "prepend_scheme is \"last\"");
  refuse_pre(sequence({metaspace, metaspace}),
             "pre_tokenizer: \"Metaspace\" is not supported here");
  refuse_pre(metaspace, "decoder: \"ByteLevel\" with these settings");  // of the file
  json file = small_file();
  file["pre_tokenizer"] = metaspace;
  file["decoder"] = nullptr;
  expect_error<InputError>([&] { import(file); }, "byte_fallback is off");
  file["model"]["byte_fallback"] = true;
  expect_error<InputError>([&] { import(file); }, "there are ids for 0 bytes, expected 256");
  file["decoder"] = {{"type", "Strip"}, {"content", "x"}, {"start", 1}, {"stop", 0}};
  expect_error<InputError>([&] { import(file); }, "decoder: \"Strip\" with these settings");
  file["pre_tokenizer"] = nullptr;
  expect_error<InputError>([&] { import(file); }, "replaces spaces by U+2581");
  file["normalizer"] = {{"type", "Prepend"}, {"prepend", "\xE2\x96\x81"}};
  expect_error<InputError>([&] { import(file); }, "Prepend without Replace");
  file["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", " "}}}, {"content", "_"}};
  expect_error<InputError>([&] { import(file); }, "Replace with a Regex is not supported");
}

TEST(HfTokenizerJson, RefusesPreTokenizersThatItWouldMisread) {
  const auto refuse = [](const json& pre_tokenizer, const std::string& words) {
    expect_refusal("/pre_tokenizer", pre_tokenizer, words);
  };
  refuse(split("a"), "expected ByteLevel or Metaspace in it");
  refuse(sequence({byte_level(true), split("a")}), "nothing may follow ByteLevel");
  refuse({{"type", "ByteLevel"}}, "add_prefix_space = true is not supported");
  json part = split("a");
  part["behavior"] = "Removed";
  refuse(sequence({part, byte_level(false)}), "Split with behavior \"Removed\"");
  part["invert"] = true;
  refuse(sequence({part, byte_level(false)}), "Split with behavior \"Removed\"");
  part = split("a");
  part["invert"] = true;
  refuse(sequence({part, byte_level(false)}), "Split with invert = true");
  part["invert"] = false;
  part["pattern"] = {{"Glob", "a"}};
  refuse(sequence({part, byte_level(false)}), "must be a Regex or a String");
  part["pattern"] = {{"String", ""}};
  refuse(sequence({part, byte_level(false)}), "Split on an empty string");
  refuse(sequence({split("(a"), byte_level(false)}), "does not compile");
}

TEST(HfTokenizerJson, RefusesPatternsThatMeanSomethingElse) {
  const auto refuse = [](const std::string& regex) {
    expect_refusal("/pre_tokenizer", sequence({split(regex), byte_level(false)}),
                   "mean the same in PCRE2");
  };
  refuse(R"(\h+)");
  refuse("[a-z&&[^b]]");
  refuse("a$");
  refuse("^a");
  refuse("(?m:a.b)");
}

TEST(HfTokenizerJson, RefusesTemplatesThatItWouldMisread) {
  const auto refuse = [](const std::vector<json>& single, const std::string& words) {
    expect_refusal("/post_processor", template_of(single), words);
  };
  refuse({kText, token_item("<bos>")}, "puts \"<bos>\" behind the text");
  refuse({token_item("<bos>"), token_item("a"), kText}, "more than one token before the text");
  refuse({token_item("<bos>")}, "the template leaves the text out");
  refuse({kText, kText}, "the template repeats the text");
  refuse({token_item("<none>"), kText}, "\"<none>\" is not in the vocabulary");
  refuse({json::object()}, "\"SpecialToken\" is missing");
  const json twice = template_of({token_item("<bos>"), kText});
  expect_refusal("/post_processor",
                 {{"type", "Sequence"}, {"processors", json::array({twice, twice})}},
                 "two templates put tokens before the text");
}

TEST(HfTokenizerJson, RefusesDamagedVocabularies) {
  expect_refusal("/model/vocab/a", 1, "both have id 1");
  expect_refusal("/model/vocab/a", -1, "must be an id from 0 to 4194303, found -1");
  expect_refusal("/model/vocab/a", 4194304, "must be an id from 0 to 4194303, found 4194304");
  expect_refusal("/model/vocab/a", 18446744073709551615U, "must be an id from 0 to");
  expect_refusal("/model/vocab/a", 0.5, "model.vocab[\"a\"] must be an id from 0 to");
  expect_refusal("/model/vocab/a", "0", "model.vocab[\"a\"] must be an id from 0 to");
  expect_refusal("/model/vocab", json::object(), "model.vocab is empty");
  expect_refusal("/model/vocab", json::array(), "model.vocab must be an object, found an array");
  expect_refusal("/model/merges", json::array({"a x"}),
                 "model.merges[0]: \"x\" is not in the vocabulary");
  expect_refusal("/model/merges", json::array({"b a"}), "to bytes that are not an ordinary token");
  expect_refusal("/model/merges", json::array({"ab"}), "model.merges[0]: \"ab\" is not two tokens");
  expect_refusal("/model/merges", json::parse(R"([["a", "b", "c"]])"),
                 "expected \"left right\" or");
  expect_refusal("/model/merges", json::array({7}), "expected \"left right\" or");
  expect_refusal("/model/merges", json::object(), "model.merges must be an array");
  expect_refusal("/model", nullptr, "the file: \"model\" is missing");
  expect_refusal("/model", 7, "model must be a JSON object, found an integer");
}

TEST(HfTokenizerJson, RefusesContradictingAddedTokens) {
  expect_refusal("/added_tokens/0/id", 5, "id 5 belongs to \"<bos>\" here and to \"2\" elsewhere");
  expect_refusal("/added_tokens/0/content", "a", "\"a\" has id 9 here and id 0 elsewhere");
  expect_refusal("/added_tokens/0/content", "", "added_tokens[0]: the content is empty");
  expect_refusal("/added_tokens/0/content", 7, "added_tokens[0]: \"content\" must be a string");
  expect_refusal("/added_tokens/0/id", nullptr, "added_tokens[0]: \"id\" is missing");
  expect_refusal("/added_tokens/0/special", 1, "\"special\" must be true or false");
  expect_refusal("/added_tokens", 7, "added_tokens must be an array");
  json file = small_file();
  file["added_tokens"].push_back(file["added_tokens"][0]);
  expect_error<InputError>([&] { import(file); }, "is listed twice");
}

TEST(HfTokenizerJson, RefusesWhatIsNotJson) {
  for (const std::string text : {"", "{", "nonsense", "{\"model\": \"\xFF\"}"}) {
    expect_error<InputError>([&] { tokenizer_from_hf_json(text, ""); }, "not valid JSON at column");
  }
  expect_error<InputError>([] { tokenizer_from_hf_json("[]", ""); },
                           "the file must be a JSON object, found an array");
}

TEST(HfTokenizerJson, SurvivesDeepNesting) {
  const std::string deep(1'000'000, '[');
  expect_error<InputError>([&] { tokenizer_from_hf_json(deep, ""); }, "nested more than 100 deep");
  expect_error<InputError>(
      [&] {
        tokenizer_from_hf_json("{\"model\": " + deep + std::string(deep.size(), ']') + "}", "");
      },
      "nested more than 100 deep");
  json nested = byte_level(true);
  json processor = {{"type", "ByteLevel"}};
  json decoder = {{"type", "ByteLevel"}};
  for (int i = 0; i < 20; ++i) {
    nested = sequence({nested});
    processor = {{"type", "Sequence"}, {"processors", json::array({processor})}};
    decoder = {{"type", "Sequence"}, {"decoders", json::array({decoder})}};
  }
  expect_refusal("/pre_tokenizer", nested, "nested more than 16 deep");
  expect_refusal("/post_processor", processor, "nested more than 16 deep");
  expect_refusal("/decoder", decoder, "decoder: \"Sequence\" is not supported");
}

}  // namespace
}  // namespace caravan::text
