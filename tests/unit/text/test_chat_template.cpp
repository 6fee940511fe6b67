// Templates in the shapes in which checkpoints carry them, shortened to what matters.

#include <gtest/gtest.h>

#include "caravan/text/chat_format.h"

namespace caravan::text {
namespace {

const std::string kLlama30 =
    "{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + "
    "'<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' %}{{ content }}{% endfor "
    "%}";
const std::string kHeader = "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}";
const std::string kLlama31 =
    "{{- bos_token }}\n{#- a comment that says '<|image|' #}\n"
    "{{- \"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}\n"
    "{{- \"Cutting Knowledge Date: December 2023\\n\" }}\n"
    "{{- \"Today Date: \" + date_string + \"\\n\\n\" }}\n" +
    kLlama30;

std::string chatml(const std::string& before) {
  return "{% for message in messages %}" + before +
         "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
         "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
}

void expect_kind(const std::string& jinja, ChatFormatKind kind, const std::string& system = {}) {
  const auto recognised = recognise_chat_template(jinja);
  ASSERT_TRUE(recognised) << jinja;
  EXPECT_EQ(recognised->kind, kind) << jinja;
  EXPECT_EQ(recognised->default_system, system) << jinja;
}

TEST(ChatTemplate, NoTemplateIsABaseModel) { expect_kind("", ChatFormatKind::kNone); }

TEST(ChatTemplate, RecognisesLlama3WithAndWithoutSwitch) {
  expect_kind(kLlama30 + kHeader, ChatFormatKind::kLlama3);
  expect_kind(kLlama30 + "{% if add_generation_prompt %}" + kHeader + "{% endif %}",
              ChatFormatKind::kLlama3);
}

TEST(ChatTemplate, RecognisesLlama31AndItsClockVariant) {
  expect_kind(kLlama31, ChatFormatKind::kLlama31);
  expect_kind("{%- set date_string = strftime_now(\"%d %b %Y\") %}" + kLlama31,
              ChatFormatKind::kLlama31);
}

TEST(ChatTemplate, RecognisesChatMlAndTakesItsSystemText) {
  expect_kind(chatml(""), ChatFormatKind::kChatMl);
  const std::string condition = "{% if loop.first and messages[0]['role'] != 'system' %}";
  expect_kind(
      chatml(condition + "{{ '<|im_start|>system\nYou\\'re {kind}.<|im_end|>\n' }}{% endif %}"),
      ChatFormatKind::kChatMl, "You're {kind}.");
  expect_kind(
      chatml(condition + "{{ \"<|im_start|>system\\nA\\tB\\n\\nC<|im_end|>\\n\" }}{% endif %}"),
      ChatFormatKind::kChatMl, "A\tB\n\nC");
  expect_kind(chatml(condition + "<|im_start|>system\nPlain text<|im_end|>\n{% endif %}"),
              ChatFormatKind::kChatMl, "Plain text");
  expect_kind(chatml("{{ '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}"),
              ChatFormatKind::kChatMl);
}

TEST(ChatTemplate, DoesNotGuess) {
  const std::vector<std::string> others = {
      "{{ '<|user|>\n' + message['content'] }}",
      "{{ '[INST] ' + message['content'] + ' [/INST]' }}",
      kLlama30 + "{{ '<|image|>' }}",
      "{{ '<|start_header_id|>' + m['content'] + '<|end_header_id|>' + '<|eot_id|>' }}",  // no trim
      "{{ '<|start_header_id|>system<|end_header_id|>\n\nBe nice.<|eot_id|>' }}" + kLlama30,
      "{{ 'Today Date: ' }}" + kLlama30,
      "{{ bos_token }}" + chatml(""),
      chatml("{{ message['content'] | trim }}"),
      chatml("{{ '<think>' }}"),
  };
  for (const std::string& jinja : others) EXPECT_FALSE(recognise_chat_template(jinja)) << jinja;
}

TEST(ChatTemplate, SurvivesTornTemplates) {
  for (const std::string& jinja : {kLlama31, chatml("{{ '<|im_start|>system\nx<|im_end|>' }}")}) {
    for (std::size_t length = 0; length < jinja.size(); ++length) {
      EXPECT_NO_THROW(recognise_chat_template(jinja.substr(0, length)));
    }
  }
}

}  // namespace
}  // namespace caravan::text
