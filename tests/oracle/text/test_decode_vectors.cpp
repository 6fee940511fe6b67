// Bytes, repaired text and streamed pieces of 340 id sequences against Python's UTF-8 decoder.

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
