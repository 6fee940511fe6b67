// Random texts through the sentencepiece library and through the importer of its files. The models
// are the stored one and variants of it: a protobuf message with fields appended is the message
// with these fields added or replaced.

#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include <random>

#include "caravan/text/detokenizer.h"
#include "oracle/text/reference_files.h"
#include "unit/text/protobuf_bytes.h"

namespace caravan::test {
namespace {

using text::Tokenizer;

constexpr unsigned kNormalizer = 3;

/// Texts of 0 to 60 parts that tokenizers find hard.
class RandomTexts {
 public:
  std::string next() {
    std::string text;
    for (auto count = random_() % 60; count > 0; --count) text += parts_[random_() % parts_.size()];
    return text;
  }

 private:
  const std::vector<std::string> parts_ = {"a",
                                           "b",
                                           "e",
                                           "th",
                                           "the",
                                           "ing",
                                           " ",
                                           " ",
                                           "  ",
                                           "\n",
                                           "\t",
                                           "1",
                                           "42",
                                           "\xC3\xA9",
                                           "o\xCC\x88",
                                           "\xE4\xBD\xA0",
                                           "\xF0\x9F\x98\x80",
                                           "\xE2\x96\x81",
                                           "<s>",
                                           "</s>",
                                           "<unk>",
                                           "<0x0A>",
                                           ".",
                                           "[INST]",
                                           "qz",
                                           "qzq",
                                           " qz",
                                           "xq",
                                           " tokenqz",
                                           "\xEF\xBF\xBD",
                                           "\xC2\xA0",
                                           "token",
                                           " token",
                                           "zz",
                                           "x"};
  std::mt19937 random_{20240726};
};

void expect_same_ids(const std::string& model, int num_texts) {
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.LoadFromSerializedProto(model).ok());
  const Tokenizer tokenizer(text::tokenizer_from_sentencepiece(model));
  ASSERT_EQ(tokenizer.vocab_size(), library.GetPieceSize());
  RandomTexts texts;
  for (int i = 0; i < num_texts; ++i) {
    const std::string input = texts.next();
    std::vector<int> expected;
    ASSERT_TRUE(library.Encode(input, &expected).ok());
    ASSERT_EQ(tokenizer.encode(input), expected) << "\"" << input << "\"";
    text::Detokenizer stream(tokenizer, false, text::DecodedText::kBegins);
    std::string decoded;
    for (const int id : expected) decoded += stream.push(id);
    std::string expected_text;
    ASSERT_TRUE(library.Decode(expected, &expected_text).ok());
    EXPECT_EQ(decoded + stream.finish(), expected_text) << "\"" << input << "\"";
  }
}

std::string stored_model() { return read_text_file(data_file("spm-small/tokenizer.model")); }

TEST(SentencePieceLibrary, SameIdsAndText) { expect_same_ids(stored_model(), 3000); }

TEST(SentencePieceLibrary, SameIdsForLlama2) {
  CARAVAN_NEED_MODEL_FILE(path, kLlama2Model);
  expect_same_ids(read_text_file(path), 3000);
}

TEST(SentencePieceLibrary, SameIdsWithoutDummyPrefix) {
  expect_same_ids(stored_model() + bytes_field(kNormalizer, number_field(3, 0)), 1000);
}

TEST(SentencePieceLibrary, SameIdsWhereExtraSpacesAreRemoved) {
  expect_same_ids(stored_model() + bytes_field(kNormalizer, number_field(4, 1)), 1000);
}

TEST(SentencePieceLibrary, SameIdsWithUserDefinedPieces) {
  expect_same_ids(stored_model() + piece("qz", 0, kUserDefined) + piece("qzq", 0, kUserDefined) +
                      piece("\xE2\x96\x81tokenqz", 0, kUserDefined) +
                      piece("\n\n", 0, kUserDefined),
                  1000);
}

TEST(SentencePieceLibrary, SameIdsWithEqualScores) {
  // All of them may merge at once; the leftmost comes first.
  std::string model = stored_model();
  for (const char* name : {"zz", "zzz", "zzx", "xz", "qx", "xqz", "zxq", "aa", "aab", "ba", "bb"}) {
    model += piece(name, 0, kNormal);
  }
  expect_same_ids(model, 2000);
}

TEST(SentencePieceLibrary, SameIdsWithCharactersThatAreNoPieces) {
  // U+1F600, U+FFFD and U+00A0 occur in these pieces alone.
  expect_same_ids(stored_model() + piece("\xF0\x9F\x98\x80\xF0\x9F\x98\x80", 0, kNormal) +
                      piece("a\xEF\xBF\xBD", 0, kNormal) +
                      piece("\xC2\xA0\xC2\xA0\xC2\xA0", 0, kNormal),
                  1000);
}

TEST(SentencePieceLibrary, SameIdsWithPiecesAcrossWords) {
  expect_same_ids(
      stored_model() + piece("e\xE2\x96\x81", 0, kNormal) + piece("e\xE2\x96\x81the", 1, kNormal),
      1000);
}

}  // namespace
}  // namespace caravan::test
