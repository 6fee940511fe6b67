#include <fmt/format.h>
#include <gtest/gtest.h>

#include "caravan/core/error.h"
#include "caravan/text/tokenizer.h"
#include "support/expect_error.h"
#include "unit/text/protobuf_bytes.h"

namespace caravan::text {
namespace {

using test::bytes_field;
using test::expect_error;
using test::number_field;
using test::piece;
using Ids = std::vector<std::int32_t>;

const std::string kBpe = number_field(3, 2) + number_field(35, 1);

/// <unk>, <s>, </s>, the bytes (ids 3 to 258), and a few pieces from id 259 on.
std::string small_model() {
  std::string model = piece("<unk>", 0, test::kUnknown) + piece("<s>", 0, test::kControl) +
                      piece("</s>", 0, test::kControl);
  for (int byte = 0; byte < 256; ++byte) {
    model += piece(fmt::format("<0x{:02X}>", byte), 0, test::kByte);
  }
  const std::vector<std::string> names = {
      "\xE2\x96\x81"
      "ab",
      "ab",
      "\xE2\x96\x81",
      "a",
      "b",
      "c"};
  float score = 0;
  for (const std::string& name : names) model += piece(name, score--, test::kNormal);
  return model + bytes_field(2, kBpe) + bytes_field(3, number_field(4, 0));
}

void expect_refusal(const std::string& model, const std::string& words) {
  expect_error<InputError>([&] { tokenizer_from_sentencepiece(model); }, words);
}

TEST(SentencePieceFile, ReadsPiecesAndRules) {
  const TokenizerSpec spec = tokenizer_from_sentencepiece(small_model());
  EXPECT_EQ(spec.kind, TokenizerKind::kSentencePiece);
  ASSERT_EQ(spec.tokens.size(), 265U);
  EXPECT_EQ(spec.tokens[3 + 'x'], "x");
  EXPECT_EQ(spec.tokens[259], " ab");
  EXPECT_EQ(spec.scores[260], -1);
  EXPECT_EQ(spec.byte_ids[10], 13);
  EXPECT_EQ(spec.added_tokens, (std::vector<AddedToken>{{0, "<unk>"}, {1, "<s>"}, {2, "</s>"}}));
  EXPECT_EQ(spec.bos_id, 1);
  EXPECT_EQ(spec.eos_id, 2);
  EXPECT_EQ(spec.unknown_id, 0);
  EXPECT_TRUE(spec.add_bos);
  EXPECT_EQ(spec.space_prefix, SpacePrefix::kEverySegment);
  EXPECT_FALSE(spec.remove_extra_spaces);
}

TEST(SentencePieceFile, ReadsTheNormalizerFlags) {
  const auto with = [](const std::string& flags) {
    return tokenizer_from_sentencepiece(small_model() + bytes_field(3, flags));
  };
  EXPECT_EQ(with(number_field(3, 0)).space_prefix, SpacePrefix::kNone);
  EXPECT_TRUE(with(number_field(4, 1)).remove_extra_spaces);
}

TEST(SentencePieceFile, FindsBosAndEosByTheirNames) {
  const std::string names = bytes_field(2, std::string("\xF2\x02\x03[B]", 6));  // bos_piece
  EXPECT_FALSE(tokenizer_from_sentencepiece(small_model() + names).bos_id);
  EXPECT_FALSE(tokenizer_from_sentencepiece(small_model() + names).add_bos);
  const auto spec =
      tokenizer_from_sentencepiece(small_model() + names + piece("[B]", 0, test::kControl));
  EXPECT_EQ(spec.bos_id, 265);
}

TEST(SentencePieceFile, KeepsPiecesOutOfTextThatCannotCome) {
  const Tokenizer tokenizer(tokenizer_from_sentencepiece(
      small_model() + piece("[unused]", 0, test::kUnused) + piece("a b", 0, test::kNormal)));
  EXPECT_EQ(tokenizer.token_bytes(265), "");
  EXPECT_EQ(tokenizer.encode("a b"), (Ids{261, 262, 261, 263}));
}

TEST(SentencePieceFile, RefusesWhatItDoesNotBuild) {
  const std::string model = small_model();
  expect_refusal("", "there are no pieces");
  expect_refusal(model + bytes_field(2, number_field(3, 1)), "model_type is 1, only 2 (BPE)");
  expect_refusal(model + bytes_field(2, number_field(24, 1)), "treat_whitespace_as_suffix");
  expect_refusal(model + bytes_field(2, number_field(35, 0)), "byte_fallback is off");
  expect_refusal(model + bytes_field(3, bytes_field(2, "xy")),
                 "normalizer_spec changes characters");
  expect_refusal(model + bytes_field(3, number_field(5, 0)), "escape_whitespaces = false");
  expect_refusal(model + bytes_field(5, bytes_field(2, "xy")),
                 "denormalizer_spec changes characters");
  expect_refusal(model + piece("abc", 0, test::kUnused),
                 "piece 265 (\"abc\") is unused and can be merged from others");
}

TEST(SentencePieceFile, RefusesDamagedFields) {
  const std::string model = small_model();
  expect_refusal(model + piece("<0xGG>", 0, test::kByte), "byte token 265 is called \"<0xGG>\"");
  expect_refusal(model + piece("<0x0A>", 0, test::kByte), "tokens 13 and 265 are both \"<0x0A>\"");
  expect_refusal(model + piece("d", 0, static_cast<test::PieceType>(7)), "piece 265 has type 7");
  expect_refusal(model + piece("\xC3", 0, test::kNormal), "piece 265 is empty or not valid UTF-8");
  expect_refusal(model + piece("", 0, test::kNormal), "piece 265 is empty or not valid UTF-8");
  expect_refusal(model + piece("a", 0, test::kNormal), "tokens 262 and 265 have the same bytes");
  expect_refusal(model + piece("d", std::numeric_limits<float>::quiet_NaN(), test::kNormal),
                 "the score of token 265 is not a number");
  expect_refusal(piece("a", 0, test::kNormal) + bytes_field(2, kBpe),
                 "there are ids for 0 bytes, expected 256");
  expect_refusal(number_field(1, 0), "pieces (field 1) is not of the expected type");
  expect_refusal(model + std::string(1, '\x0B'), "field 1 has wire type 3");
  expect_refusal(model + std::string(1, '\x02'), "expected a field number from 1");
  expect_refusal(model + std::string(11, '\xFF'), "a number has more than 10 bytes");
  expect_refusal(model + std::string("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 11),
                 "18446744073709551615 bytes are announced");
}

TEST(SentencePieceFile, RefusesTornFilesOrReadsWholeFields) {
  const std::string model = small_model();
  for (std::size_t size = 0; size < model.size(); size += 7) {
    try {
      tokenizer_from_sentencepiece(model.substr(0, size));
      ADD_FAILURE() << size << " of " << model.size() << " bytes were accepted";
    } catch (const InputError&) {
    }
  }
}

}  // namespace
}  // namespace caravan::text
