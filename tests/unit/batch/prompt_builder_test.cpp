#include "caravan/batch/prompt_builder.h"

#include <gtest/gtest.h>

#include <string>

#include "unit/batch/parser_rig.h"

namespace caravan::batch {
namespace {

using test::BuilderRig;

Record completion(CompletionPrompt prompt, std::optional<std::int64_t> max_tokens) {
  Record record;
  record.endpoint = Endpoint::kCompletion;
  record.prompts = {std::move(prompt)};
  record.max_tokens = max_tokens;
  return record;
}

std::string fault_code(const BuilderRig& rig, const Record& record) {
  const auto checked = rig.builder.check(record);
  const BuiltPrompts built = rig.builder.build(record);
  const auto* fault = std::get_if<RecordFault>(&built);
  EXPECT_EQ(checked.has_value(), fault != nullptr) << "check() and build() disagree";
  if (checked && fault != nullptr) {
    EXPECT_EQ(checked->code, fault->code);
  }
  return fault == nullptr ? "" : fault->code;
}

TEST(PromptBuilder, TextsGetBosAndIdsAreTakenAsTheyAre) {
  const BuilderRig rig(32, true);
  const auto text = std::get<std::vector<TokenizedPrompt>>(rig.builder.build(completion("ab", 4)));
  EXPECT_EQ(text.at(0).ids, (std::vector<std::int32_t>{test::kEotId, 'a', 'b'}));
  EXPECT_EQ(text.at(0).max_tokens, 4);
  const auto ids = std::get<std::vector<TokenizedPrompt>>(
      rig.builder.build(completion(std::vector<std::int32_t>{7, 8}, 4)));
  EXPECT_EQ(ids.at(0).ids, (std::vector<std::int32_t>{7, 8}));
  Record bare = completion("ab", 4);
  bare.add_special_tokens = false;
  EXPECT_EQ(std::get<std::vector<TokenizedPrompt>>(rig.builder.build(bare)).at(0).ids.size(), 2U);
}

TEST(PromptBuilder, NoLimitMeansUpToTheContextsEnd) {
  const BuilderRig rig(32);
  const auto built =
      std::get<std::vector<TokenizedPrompt>>(rig.builder.build(completion("abcd", std::nullopt)));
  EXPECT_EQ(built.at(0).max_tokens, 28);
  EXPECT_EQ(rig.builder.worst_case_tokens(completion("abcd", std::nullopt)), 32);
}

TEST(PromptBuilder, FaultsAreFoundAtTheBorder) {
  const BuilderRig rig(32);
  EXPECT_EQ(fault_code(rig, completion(std::string(28, 'a'), 4)), "");
  EXPECT_EQ(fault_code(rig, completion(std::string(29, 'a'), 4)), "context_length_exceeded");
  EXPECT_EQ(fault_code(rig, completion(std::string(32, 'a'), 0)), "");
  EXPECT_EQ(fault_code(rig, completion(std::string(32, 'a'), std::nullopt)),
            "context_length_exceeded");
  EXPECT_EQ(fault_code(rig, completion(std::string(100000, 'a'), 1)), "context_length_exceeded");
  EXPECT_EQ(fault_code(rig, completion("", 4)), "empty_prompt");
  EXPECT_EQ(fault_code(rig, completion(std::vector<std::int32_t>{}, 4)), "empty_prompt");
  EXPECT_EQ(fault_code(BuilderRig(32, true), completion("", 4)), "");
}

TEST(PromptBuilder, WorstCaseBoundsWhatIsBuilt) {
  const BuilderRig rig(1000, true);
  const Record record = completion("STOP and a.b", 10);
  const auto built = std::get<std::vector<TokenizedPrompt>>(rig.builder.build(record));
  EXPECT_GE(rig.builder.worst_case_tokens(record), std::ssize(built.at(0).ids) + 10);
}

Record chat(std::vector<text::ChatMessage> messages, std::optional<std::int64_t> max_tokens) {
  Record record;
  record.messages = std::move(messages);
  record.max_tokens = max_tokens;
  return record;
}

TEST(PromptBuilder, MinTokensThatTheContextCannotHoldAreAFault) {
  const BuilderRig rig(32, true, text::ChatFormatKind::kLlama2);
  for (const std::int64_t min_tokens : {12, 13, 14, 15, 16, 1000}) {
    Record record = chat({{"user", "abc"}}, std::nullopt);  // <eot>[INST] abc [/INST]: 19 tokens
    record.sampling.min_tokens = min_tokens;
    EXPECT_EQ(fault_code(rig, record), min_tokens > 13 ? "context_length_exceeded" : "")
        << min_tokens;
    Record raw = completion(std::string(18, 'a'), std::nullopt);
    raw.sampling.min_tokens = min_tokens;
    EXPECT_EQ(fault_code(rig, raw), min_tokens > 13 ? "context_length_exceeded" : "") << min_tokens;
  }
  Record record = chat({{"user", "abcd"}}, std::nullopt);
  record.sampling.min_tokens = 1000;
  EXPECT_EQ(rig.builder.check(record)->param, "min_tokens");
}

TEST(PromptBuilder, WhatALayoutCannotExpressIsFoundBeforeTheRun) {
  const BuilderRig rig(4096, true, text::ChatFormatKind::kLlama2);
  const auto param = [&](const Record& record) {
    EXPECT_NE(fault_code(rig, record), "");
    return rig.builder.check(record).value_or(RecordFault{}).param;
  };
  EXPECT_EQ(param(chat({{"assistant", "x"}}, 4)), "messages.0");
  EXPECT_EQ(param(chat({{"user", "x"}, {"user", "y"}}, 4)), "messages.1");
  EXPECT_EQ(param(chat({{"user", "x"}, {"tool", "y"}}, 4)), "messages.1");
  EXPECT_EQ(param(chat({{"system", "x"}}, 4)), "messages");
  Record tools = chat({{"user", "x"}}, 4);
  tools.chat_options.tools = {"{}"};
  EXPECT_EQ(param(tools), "tools");
  EXPECT_EQ(fault_code(rig, tools), "unsupported_parameter");
  tools.chat_options.tools.clear();
  tools.chat_options.builtin_tools = {"brave_search"};
  EXPECT_EQ(param(tools), "chat_template_kwargs.builtin_tools");
}

TEST(PromptBuilder, NamesArgumentsOfAToolCallThatAreNoJson) {
  text::TokenizerSpec spec = test::byte_tokenizer_spec();
  for (const char* content : {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                              "<|eot_id|>", "<|eom_id|>", "<|python_tag|>"}) {
    const auto id = static_cast<std::int32_t>(spec.tokens.size());
    spec.tokens.emplace_back();
    spec.added_tokens.push_back({id, content, true});
  }
  const BuilderRig rig(4096, spec, text::ChatFormatKind::kLlama31);
  for (const char* arguments : {"{", R"({"a": 1, "a": 2})", "[[[["}) {
    Record record = chat({{"user", "x"}, {"assistant", ""}, {"user", "y"}}, 4);
    record.messages[1].tool_calls = {{"f", arguments}};
    const auto fault = rig.builder.check(record);
    ASSERT_TRUE(fault) << arguments;
    EXPECT_EQ(fault->param, "messages.1.tool_calls.0.function.arguments") << fault->message;
  }
}

TEST(PromptBuilder, TextsThatLeaveNoTokenAreFoundBeforeTheRun) {
  text::TokenizerSpec spec = test::byte_tokenizer_spec();
  spec.tokens['q'].clear();  // a byte without a token is left out
  const BuilderRig rig(32, spec);
  EXPECT_EQ(fault_code(rig, completion("qqq", 4)), "empty_prompt");
  EXPECT_EQ(fault_code(rig, completion("qaq", 4)), "");
  EXPECT_EQ(fault_code(rig, completion(std::string(100000, 'q') + "a", 4)), "");
}

TEST(PromptBuilder, StopIdsThatLeaveNothingBeforeMinTokensAreAFault) {
  const BuilderRig rig(32);
  Record record = completion("a", 4);
  for (std::int32_t id = 0; id < test::kByteVocabulary; ++id) {
    record.sampling.stop_ids.push_back(id);
  }
  EXPECT_EQ(fault_code(rig, record), "");
  record.sampling.min_tokens = 1;
  EXPECT_EQ(fault_code(rig, record), "invalid_value");
}

TEST(PromptBuilder, ModelsWithoutChatFormatRefuseChats) {
  const BuilderRig rig(32);
  Record record;
  record.endpoint = Endpoint::kChat;
  record.messages = {{"user", "Hi"}};
  EXPECT_EQ(fault_code(rig, record), "unsupported_endpoint");
}

}  // namespace
}  // namespace caravan::batch
