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

// In the spelling of Llama 2's template, and in that of Code Llama's.
std::string llama2(const std::string& strip, const std::string& quote) {
  const auto literal = [&](const std::string& text) { return quote + text + quote; };
  return "{% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] %}"
         "{% endif %}{% for message in loop_messages %}{% set content = " +
         literal("<<SYS>>\\n") + " + system_message + " + literal("\\n<</SYS>>\\n\\n") +
         " + message['content'] %}{% if message['role'] == 'user' %}{{ bos_token + " +
         literal("[INST] ") + " + content" + strip + " + " + literal(" [/INST]") +
         " }}{% else %}{{ " + literal(" ") + "  + content" + strip + " + " + literal(" ") +
         " + eos_token }}{% endif %}{% endfor %}";
}

std::string zephyr(const std::string& end) {
  return "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\\n' + "
         "message['content'] + eos_token }}" +
         end +
         "{% elif message['role'] == 'system' %}\n"
         "{{ '<|system|>\n' + message['content'] + eos_token }}\n{% else %}\n"
         "{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n"
         "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n"
         "{% endfor %}";
}

const std::string kVision =
    "{% set system_message = messages[0]['content']|trim %}{% if not image_ns.has_images %}"
    "{{- \"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}\n"
    "{{- \"Cutting Knowledge Date: December 2023\\n\" }}{{- \"Today Date: \" + date_string }}"
    "{%- endif %}{%- if message['content'] is string %}{{- message['content'] }}{%- else %}"
    "{%- if content['type'] == 'image' %}{{- '<|image|>' }}{%- else %}{{- content['text'] }}"
    "{%- endif %}{%- endif %}{{- '<|eot_id|>' }}";

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

TEST(ChatTemplate, RecognisesLlama32Vision) {
  expect_kind(kVision, ChatFormatKind::kLlama32Vision);
  // The converter's own template has no system block.
  EXPECT_FALSE(recognise_chat_template(
      "{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>' }}{{ '<|image|>' }}"
      "{{ content['text'] | trim }}{{ '<|eot_id|>' }}"));
}

TEST(ChatTemplate, RecognisesLlama2) {
  for (const std::string strip : {".strip()", " | trim"}) {
    for (const std::string quote : {"'", "\""}) {
      expect_kind(llama2(strip, quote), ChatFormatKind::kLlama2);
    }
  }
  EXPECT_FALSE(recognise_chat_template(llama2("", "'")));
  EXPECT_FALSE(recognise_chat_template("{% set system_message = 'You are helpful' %}" +
                                       llama2(".strip()", "'")));
  // Mistral's: no system text, other spaces.
  EXPECT_FALSE(
      recognise_chat_template("{{ bos_token }}{% for message in messages %}{{ '[INST] ' + "
                              "message['content'] + ' [/INST]' }}"
                              "{{ message['content'] + eos_token + ' ' }}{% endfor %}"));
}

TEST(ChatTemplate, RecognisesZephyr) {
  expect_kind(zephyr("\n"), ChatFormatKind::kZephyr);
  EXPECT_FALSE(recognise_chat_template(zephyr("")));
  EXPECT_FALSE(recognise_chat_template("{{ bos_token }}" + zephyr("\n")));
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
  for (const std::string& jinja : {kLlama31, kVision, llama2(".strip()", "'"), zephyr("\n"),
                                   chatml("{{ '<|im_start|>system\nx<|im_end|>' }}")}) {
    for (std::size_t length = 0; length < jinja.size(); ++length) {
      EXPECT_NO_THROW(recognise_chat_template(jinja.substr(0, length)));
    }
  }
}

}  // namespace
}  // namespace caravan::text
