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

TEST(PromptBuilder, ModelsWithoutChatFormatRefuseChats) {
  const BuilderRig rig(32);
  Record record;
  record.endpoint = Endpoint::kChat;
  record.messages = {{"user", "Hi"}};
  EXPECT_EQ(fault_code(rig, record), "unsupported_endpoint");
}

}  // namespace
}  // namespace caravan::batch
