// Tokenizer and chat format of a source, against each other and the model's sizes.

#include <gtest/gtest.h>

#include "caravan/checkpoint/source.h"
#include "caravan/core/error.h"
#include "caravan/text/tokenizer.h"
#include "generated_model.h"
#include "support/expect_error.h"

namespace caravan::checkpoint {
namespace {

using nlohmann::json;
using test::expect_error;
using test::HfFolder;
using text::ChatFormatKind;

const std::string kChatMl =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

struct Opened {
  ModelDescription description;
  std::string log;
};

Opened open(const std::string& path, const SourceOptions& options = {}) {
  testing::internal::CaptureStderr();
  try {
    const Source source = open_source(path, options);
    return {source.description, testing::internal::GetCapturedStderr()};
  } catch (...) {
    testing::internal::GetCapturedStderr();
    throw;
  }
}

/// As Hermes has it: Llama 3's BOS before every text, ChatML in chats.
struct ChatMlOnLlama : testing::Test {
  void SetUp() override {
    folder.write();
    json tokenizer = json::parse(io::read_text_file(folder.file("tokenizer.json"), 1 << 24));
    tokenizer["post_processor"] = {{"type", "TemplateProcessing"},
                                   {"single",
                                    {{{"SpecialToken", {{"id", "<|endoftext|>"}, {"type_id", 0}}}},
                                     {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
                                   {"pair", json::array()},
                                   {"special_tokens", json::object()}};
    folder.write("tokenizer.json", tokenizer.dump());
    set_template("{{ bos_token }}" + kChatMl);
  }
  void set_template(const std::string& text) const {
    folder.write(
        "tokenizer_config.json",
        json{{"bos_token", "<|endoftext|>"}, {"eos_token", "<|im_end|>"}, {"chat_template", text}}
            .dump());
  }
  HfFolder folder;
};

TEST_F(ChatMlOnLlama, KeepsBosWhereTheTemplatePrintsIt) {
  const Opened source = open(folder.path());
  EXPECT_EQ(source.description.chat_format, ChatFormatKind::kChatMlBos);
  EXPECT_EQ(source.description.chat_default_system, "");
  EXPECT_EQ(source.log.find("without BOS"), std::string::npos) << source.log;
  const text::Tokenizer tokenizer(source.description.tokenizer);
  const text::ChatFormat format(ChatFormatKind::kChatMlBos, tokenizer);
  const auto ids = format.render({{"user", "Hi", {}}}, {});
  EXPECT_EQ(ids[0], source.description.tokenizer.bos_id);
  EXPECT_EQ(ids[1], tokenizer.special_id("<|im_start|>"));
  set_template(kChatMl);
  EXPECT_EQ(open(folder.path()).description.chat_format, ChatFormatKind::kChatMl);
}

TEST_F(ChatMlOnLlama, WarnsWhenAChosenFormatLeavesOutBos) {
  const auto warns = [&](ChatFormatKind kind) {
    return open(folder.path(), {.chat_format = kind}).log.find("begin without BOS") !=
           std::string::npos;
  };
  EXPECT_TRUE(warns(ChatFormatKind::kChatMl));
  EXPECT_FALSE(warns(ChatFormatKind::kChatMlBos));
  folder.write("tokenizer.json",
               io::read_text_file(test::kCheckpoints + "/tiny-uneven/tokenizer.json", 1 << 24));
  EXPECT_FALSE(warns(ChatFormatKind::kChatMl));  // no BOS before text either
}

}  // namespace
}  // namespace caravan::checkpoint
