// Bytes, repaired text and streamed pieces of 680 id sequences against Python's UTF-8 decoder.

#include <gtest/gtest.h>

#include "caravan/text/detokenizer.h"
#include "caravan/text/utf8.h"
#include "oracle/text/reference_files.h"
#include "support/base64.h"

namespace caravan::test {
namespace {

using text::Tokenizer;

void expect_decoding(const Tokenizer& tokenizer, const std::string& name) {
  int count = 0;
  for (const auto& record : read_records("vectors/decode.jsonl")) {
    if (record.at("tokenizer") != name) continue;
    ++count;
    SCOPED_TRACE(record.at("id").dump());
    const auto ids = record.at("ids").get<std::vector<std::int32_t>>();
    const std::string bytes = tokenizer.decode_bytes(ids, true);
    EXPECT_EQ(bytes, base64_decode(record.at("bytes_b64").get<std::string>()));
    EXPECT_EQ(text::replace_invalid_utf8(bytes), record.at("text").get<std::string>());
    text::Detokenizer stream(tokenizer, true);
    std::vector<std::string> pieces;
    for (const std::int32_t id : ids) pieces.push_back(stream.push(id));
    EXPECT_EQ(pieces, record.at("stream").get<std::vector<std::string>>());
    EXPECT_EQ(stream.finish(), record.at("stream_final").get<std::string>());
  }
  EXPECT_GT(count, 100);
}

/// At the start of a text the library's result: without the space prefix. It differs in what stands
/// for bytes that are not UTF-8, which is compared above.
void expect_sentencepiece_text(const Tokenizer& tokenizer, const std::string& name) {
  const std::string replacement = "\xEF\xBF\xBD";
  int count = 0;
  for (const auto& record : read_records("vectors/decode.jsonl")) {
    if (record.at("tokenizer") != name) continue;
    const auto expected = record.at("sentencepiece_decode").get<std::string>();
    if (expected.find(replacement) != std::string::npos) continue;
    ++count;
    text::Detokenizer stream(tokenizer, false, text::DecodedText::kBegins);
    std::string decoded;
    for (const auto& id : record.at("ids")) decoded += stream.push(id.get<std::int32_t>());
    EXPECT_EQ(decoded + stream.finish(), expected) << record.at("id");
  }
  EXPECT_GT(count, 80);
}

TEST(DecodeVectors, SentencePieceOfOwnMaking) {
  const Tokenizer tokenizer(
      text::tokenizer_from_sentencepiece(read_text_file(data_file("spm-small/tokenizer.model"))));
  expect_decoding(tokenizer, "spm_small");
  expect_sentencepiece_text(tokenizer, "spm_small");
}

TEST(DecodeVectors, Llama2) {
  CARAVAN_NEED_MODEL_FILE(path, kLlama2Model);
  const Tokenizer tokenizer(text::tokenizer_from_sentencepiece(read_text_file(path)));
  expect_decoding(tokenizer, "llama2");
  expect_sentencepiece_text(tokenizer, "llama2");
}

TEST(DecodeVectors, Llama3) {
  CARAVAN_NEED_MODEL_FILE(path, kLlama3Model);
  expect_decoding(Tokenizer(text::tokenizer_from_tiktoken(read_text_file(path), 128256)), "llama3");
}

TEST(DecodeVectors, SmolLm2) {
  CARAVAN_NEED_MODEL_FILE(path, kSmolLm2Gguf);
  expect_decoding(Tokenizer(text::tokenizer_from_gguf(read_gguf_text(path).tokenizer)), "smollm2");
}

}  // namespace
}  // namespace caravan::test
