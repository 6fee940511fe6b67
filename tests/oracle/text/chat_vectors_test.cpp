// Prompts of the built-in chat formats against the models' Jinja templates and Meta's own code: all
// 143 records, but for those that excluded() names.

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "caravan/core/error.h"
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

/// Records that are not what a format here is to give, and why.
bool excluded(const json& record) {
  const std::string renderer = record.at("renderer"), name = record.at("case");
  // Hugging Face takes "<s>" typed by a user for the control token; here it stays text, as in the
  // record of meta_llama2 for the same messages.
  if (renderer == "hf_jinja" && record.at("family") == "llama2" && name == "injection") return true;
  // Meta's formatter for Llama 3 does not trim contents and encodes header newlines apart from
  // them. The formats here follow the templates, which the rest of the records show to be equal.
  const std::set<std::string> edges = {"untrimmed_content", "content_starts_with_newlines",
                                       "tool_result_roles"};
  return renderer == "meta_chatformat" && edges.contains(name);
}

std::vector<ChatMessage> messages_of(const nlohmann::ordered_json& record) {
  std::vector<ChatMessage> messages;
  for (const auto& message : record.at("messages")) {
    ChatMessage parsed{message.at("role"), message.value("content", ""), {}};
    for (const auto& call : message.value("tool_calls", nlohmann::ordered_json::array())) {
      const auto& function = call.at("function");
      parsed.tool_calls.push_back({function.at("name"), function.at("arguments").dump()});
    }
    messages.push_back(std::move(parsed));
  }
  return messages;
}

ChatOptions options_of(const nlohmann::ordered_json& record) {
  const nlohmann::ordered_json& given = record.at("options");
  ChatOptions options;
  options.add_generation_prompt = given.value("add_generation_prompt", true);
  options.tools_in_user_message = given.value("tools_in_user_message", true);
  if (given.contains("builtin_tools")) given.at("builtin_tools").get_to(options.builtin_tools);
  if (given.contains("tools")) {
    for (const auto& tool : given.at("tools")) options.tools.push_back(tool.dump());
  }
  // These two add the header whatever is asked.
  const bool always =
      record.at("template") == "llama3.0-hf.jinja" || record.at("renderer") == "meta_chatformat";
  if (always) options.add_generation_prompt = true;
  if (given.contains("date_string")) {
    options.date = given.at("date_string");
  } else if (record.at("family") == "llama3.2") {  // asks the clock, 01 Dec 2026 in the vectors
    options.date = given.value("today", "01 Dec 2026");
  }
  return options;
}

/// Checks the records of one family; returns how many there were.
int expect_prompts(const ChatFormat& format, const std::string& family) {
  int count = 0;
  std::istringstream lines(read_text_file(data_file("chat/vectors.jsonl")));
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::ordered_json::parse(line);  // tools keep the order of their keys
    if (record.at("family") != family || excluded(record)) continue;
    ++count;
    SCOPED_TRACE(record.at("id").dump() + " " + record.at("case").dump());
    const auto messages = messages_of(record);
    if (record.contains("error")) {
      EXPECT_THROW(format.render(messages, options_of(record)), InputError);
      continue;
    }
    const auto got = format.render(messages, options_of(record));
    const auto& expected =
        record.at(record.contains("ids_no_injection") ? "ids_no_injection" : "ids");
    EXPECT_EQ(json(got).dump(), expected.dump());
    EXPECT_LE(std::ssize(got), format.most_tokens(messages, options_of(record)));
  }
  return count;
}

TEST(ChatVectors, Llama3Families) {
  CARAVAN_NEED_MODEL_FILE(path, kLlama3Model);
  const Tokenizer tokenizer(text::tokenizer_from_tiktoken(read_text_file(path), 128256));
  const ChatFormat llama3(ChatFormatKind::kLlama3, tokenizer);
  EXPECT_EQ(expect_prompts(llama3, "llama3"), 30);
  EXPECT_EQ(expect_prompts(llama3, "llama3.x"), 11);
  const ChatFormat llama31(ChatFormatKind::kLlama31, tokenizer);
  EXPECT_EQ(expect_prompts(llama31, "llama3.1"), 21);
  EXPECT_EQ(expect_prompts(llama31, "llama3.2"), 20);
  EXPECT_EQ(expect_prompts(llama31, "llama3.3"), 17);
}

TEST(ChatVectors, Llama2) {
  CARAVAN_NEED_MODEL_FILE(path, kLlama2Model);
  const Tokenizer tokenizer(text::tokenizer_from_sentencepiece(read_text_file(path)));
  EXPECT_EQ(expect_prompts(ChatFormat(ChatFormatKind::kLlama2, tokenizer), "llama2"), 26);
}

TEST(ChatVectors, SmolLm2WithItsOwnTemplate) {
  CARAVAN_NEED_MODEL_FILE(path, kSmolLm2Gguf);
  const GgufText file = read_gguf_text(path);
  const Tokenizer tokenizer(text::tokenizer_from_gguf(file.tokenizer));
  const auto recognised = text::recognise_chat_template(file.chat_template, tokenizer.spec());
  ASSERT_TRUE(recognised);
  EXPECT_EQ(recognised->kind, ChatFormatKind::kChatMl);
  EXPECT_EQ(recognised->default_system,
            "You are a helpful AI assistant named SmolLM, trained by Hugging Face");
  EXPECT_EQ(expect_prompts(ChatFormat(recognised->kind, tokenizer, recognised->default_system),
                           "smollm2"),
            14);
}

TEST(ChatVectors, AllFamiliesAreCovered) {
  std::map<std::string, int> families;
  int count = 0;
  for (const json& record : read_records("chat/vectors.jsonl")) {
    ++count;
    if (!excluded(record)) ++families[record.at("family")];
  }
  EXPECT_EQ(count, 143);
  EXPECT_EQ(families, (std::map<std::string, int>{{"llama2", 26},
                                                  {"llama3", 30},
                                                  {"llama3.x", 11},
                                                  {"llama3.1", 21},
                                                  {"llama3.2", 20},
                                                  {"llama3.3", 17},
                                                  {"smollm2", 14}}));
}

TEST(ChatVectors, LayoutsOfSmallTokenizers) {
  std::map<std::string, int> formats;
  for (const json& record : read_records("chat/layouts.jsonl")) {
    SCOPED_TRACE(record.dump());
    const auto field = [&](const char* name) { return record.at(name).get<std::string>(); };
    const json config = {{"bos_token", record.at("bos")}, {"eos_token", record.at("eos")}};
    const auto spec = text::tokenizer_from_hf_json(
        read_text_file(data_file(field("tokenizer") + "/tokenizer.json")), config.dump());
    const Tokenizer tokenizer(spec);
    const auto recognised = text::recognise_chat_template(field("template"), spec);
    ASSERT_TRUE(recognised);
    EXPECT_EQ(text::chat_format_name(recognised->kind), field("format"));
    ChatOptions options;
    options.add_generation_prompt = record.at("add_generation_prompt");
    const ChatFormat format(recognised->kind, tokenizer, recognised->default_system);
    EXPECT_EQ(json(format.render(messages_of(record), options)), record.at("ids"));
    ++formats[field("format")];
  }
  EXPECT_EQ(formats,
            (std::map<std::string, int>{{"zephyr", 14}, {"llama3-plain", 14}, {"chatml-bos", 14}}));
}

std::string file_of(const std::string& checkpoint, const std::string& file) {
  return read_text_file(std::filesystem::path(CARAVAN_TEST_DATA) / "checkpoints" / checkpoint /
                        file);
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
    const auto recognised = text::recognise_chat_template(
        template_of(name), text::tokenizer_from_hf_json(file_of(name, "tokenizer.json"),
                                                        file_of(name, "tokenizer_config.json")));
    ASSERT_TRUE(recognised) << name;
    EXPECT_EQ(recognised->kind, kind) << name;
    EXPECT_EQ(recognised->default_system,
              kind == ChatFormatKind::kChatMl ? "You are a tiny test model" : "")
        << name;
  }
}

}  // namespace
}  // namespace caravan::test
