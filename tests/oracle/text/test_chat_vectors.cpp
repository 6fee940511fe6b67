// Prompts of the built-in chat formats against the models' Jinja templates.

#include <gtest/gtest.h>

#include <set>

#include "caravan/text/chat_format.h"
#include "oracle/text/reference_files.h"

namespace caravan::test {
namespace {

using nlohmann::json;
using text::ChatFormat;
using text::ChatFormatKind;
using text::ChatMessage;
using text::ChatOptions;
using text::Tokenizer;

/// Plain conversations: tools and tool calls are not built in.
bool in_scope(const json& record, const std::string& family) {
  if (record.at("renderer") != "hf_jinja" || record.at("family") != family) return false;
  if (record.at("options").contains("tools") || record.at("options").contains("builtin_tools")) {
    return false;
  }
  return !record.contains("error");
}

std::vector<ChatMessage> messages_of(const json& record) {
  std::vector<ChatMessage> messages;
  for (const json& message : record.at("messages")) {
    messages.push_back({message.at("role"), message.at("content")});
  }
  return messages;
}

ChatOptions options_of(const json& record, const std::string& family) {
  const json& given = record.at("options");
  ChatOptions options;
  options.add_generation_prompt = given.value("add_generation_prompt", true);
  // The first Llama 3.0 template adds the header whatever is asked.
  if (record.at("template") == "llama3.0-hf.jinja") options.add_generation_prompt = true;
  if (given.contains("date_string")) {
    options.date = given.at("date_string");
  } else if (family == "llama3.2") {  // takes the date of the clock, 01 Dec 2026 in the vectors
    options.date = given.value("today", "01 Dec 2026");
  }
  return options;
}

void expect_prompts(const ChatFormat& format, const std::string& family, int expected_count) {
  int count = 0;
  for (const json& record : read_records("chat/vectors.jsonl")) {
    if (!in_scope(record, family)) continue;
    ++count;
    const auto got = format.render(messages_of(record), options_of(record, family));
    const json& expected =
        record.at(record.contains("ids_no_injection") ? "ids_no_injection" : "ids");
    EXPECT_EQ(json(got).dump(), expected.dump()) << record.at("id") << " " << record.at("case");
  }
  EXPECT_EQ(count, expected_count);
}

TEST(ChatVectors, Llama3Families) {
  CARAVAN_NEED_MODEL_FILE(path, kLlama3Model);
  const Tokenizer tokenizer(text::tokenizer_from_tiktoken(read_text_file(path), 128256));
  expect_prompts(ChatFormat(ChatFormatKind::kLlama3, tokenizer), "llama3", 30);
  const ChatFormat format(ChatFormatKind::kLlama31, tokenizer);
  for (const std::string family : {"llama3.1", "llama3.2", "llama3.3"}) {
    expect_prompts(format, family, 17);
  }
}

TEST(ChatVectors, SmolLm2WithItsOwnTemplate) {
  CARAVAN_NEED_MODEL_FILE(path, kSmolLm2Gguf);
  const GgufText file = read_gguf_text(path);
  const Tokenizer tokenizer(text::tokenizer_from_gguf(file.tokenizer));
  const auto recognised = text::recognise_chat_template(file.chat_template);
  ASSERT_TRUE(recognised);
  EXPECT_EQ(recognised->kind, ChatFormatKind::kChatMl);
  EXPECT_EQ(recognised->default_system,
            "You are a helpful AI assistant named SmolLM, trained by Hugging Face");
  expect_prompts(ChatFormat(recognised->kind, tokenizer, recognised->default_system), "smollm2",
                 14);
}

/// The template of a checkpoint folder of tests/data/checkpoints.
std::string template_of(const std::string& checkpoint) {
  const auto folder = std::filesystem::path(CARAVAN_TEST_DATA) / "checkpoints" / checkpoint;
  if (std::filesystem::exists(folder / "chat_template.jinja")) {
    return read_text_file(folder / "chat_template.jinja");
  }
  return json::parse(read_text_file(folder / "tokenizer_config.json")).value("chat_template", "");
}

TEST(ChatTemplates, OfCheckpointsAreRecognised) {
  const std::vector<std::pair<std::string, ChatFormatKind>> checkpoints = {
      {"tiny-llama3", ChatFormatKind::kLlama3},
      {"tiny-llama31", ChatFormatKind::kLlama31},
      {"tiny-llama32", ChatFormatKind::kLlama31},
      {"tiny-uneven", ChatFormatKind::kChatMl}};
  for (const auto& [name, kind] : checkpoints) {
    const auto recognised = text::recognise_chat_template(template_of(name));
    ASSERT_TRUE(recognised) << name;
    EXPECT_EQ(recognised->kind, kind) << name;
    EXPECT_EQ(recognised->default_system,
              kind == ChatFormatKind::kChatMl ? "You are a tiny test model" : "")
        << name;
  }
}

}  // namespace
}  // namespace caravan::test
