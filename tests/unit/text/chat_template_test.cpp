// Templates in the shapes in which checkpoints carry them.

#include <gtest/gtest.h>

#include <chrono>

#include "caravan/text/chat_format.h"
#include "unit/text/byte_spec.h"

namespace caravan::text {
namespace {

const std::string kHeader = "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}";
const std::string kSwitchedHeader = "{% if add_generation_prompt %}" + kHeader + "{% endif %}";

/// Llama 3.0's way to print messages, each `content`.
std::string llama3(const std::string& content = "message['content'] | trim",
                   const std::string& bos = "bos_token + content") {
  return "{% set all = messages %}{% for message in all %}{% set content = '<|start_header_id|>' + "
         "message['role'] + '<|end_header_id|>\n\n'+ " +
         content + " + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = " + bos +
         " %}{% endif %}{{ content }}{% endfor %}";
}

/// Llama 3.1's, with white space control; `date` sets date_string.
std::string llama31(const std::string& date) {
  return "{{- bos_token }}\n{%- if not date_string is defined %}\n    " + date +
         "\n{%- endif %}\n"
         "{#- a comment that says '<|image|' #}\n"
         "{%- if messages[0]['role'] == 'system' %}\n"
         "    {%- set system_message = messages[0]['content']|trim %}\n"
         "    {%- set messages = messages[1:] %}\n"
         "{%- else %}\n    {%- set system_message = \"\" %}\n{%- endif %}\n"
         "{{- \"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}\n"
         "{%- if tools is not none and tools is defined %}\n    {{- \"Tools\" | box }}\n{%- endif "
         "%}\n"
         "{{- \"Cutting Knowledge Date: December 2023\\n\" }}\n"
         "{{- \"Today Date: \" + date_string + \"\\n\\n\" }}\n"
         "{{- system_message }}\n{{- \"<|eot_id|>\" }}\n"
         "{%- for message in messages %}\n"
         "    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}\n"
         "        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ "
         "message['content'] | trim + '<|eot_id|>' }}\n"
         "    {%- else %}\n        {{- raise_exception(\"Not here!\") }}\n    {%- endif %}\n"
         "{%- endfor %}\n"
         "{%- if add_generation_prompt %}\n"
         "    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\n{%- endif %}\n";
}
const std::string kFixedDate = "{%- set date_string = \"26 Jul 2024\" %}";

// Contents are texts or lists of parts; without images there is a system block.
const std::string kVision =
    "{{- bos_token }}\n{%- set image_ns = namespace(has_images=false) %}\n"
    "{%- for message in messages %}{%- for content in message['content'] %}\n"
    "{%- if content['type'] == 'image' %}{%- set image_ns.has_images = true %}{%- endif %}\n"
    "{%- endfor %}{%- endfor %}\n"
    "{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content']|trim %}"
    "{%- set messages = messages[1:] %}{%- else %}{%- set system = '' %}{%- endif %}\n"
    "{%- if not image_ns.has_images %}\n"
    "{{- '<|start_header_id|>system<|end_header_id|>\n\n' }}"
    "{{- 'Cutting Knowledge Date: December 2023\n' }}"
    "{{- 'Today Date: ' + strftime_now('%d %b %Y') + '\n\n' + system + '<|eot_id|>' }}\n"
    "{%- endif %}\n{%- for message in messages %}\n"
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}\n"
    "{%- if message['content'] is string %}{{- message['content'] }}{%- else %}\n"
    "{%- for content in message['content'] %}{%- if content['type'] == 'image' %}"
    "{{- '<|image|>' }}{%- else %}{{- content['text'] }}{%- endif %}{%- endfor %}{%- endif %}\n"
    "{{- '<|eot_id|>' }}\n{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{%- endif %}";

std::string chatml(const std::string& before, const std::string& content = "message['content']") {
  return "{% for message in messages %}" + before + "{{'<|im_start|>' + message['role'] + '\n' + " +
         content +
         " + '<|im_end|>' + '\n'}}{% endfor %}"
         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
}

/// In the spelling of Llama 2's template (strip, single quotes), or in that of Code Llama's.
std::string llama2(const std::string& strip, const std::string& quote,
                   const std::string& no_system = "false") {
  const auto literal = [&](const std::string& text) { return quote + text + quote; };
  return "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
         "{% set system_message = messages[0]['content'] %}{% else %}"
         "{% set loop_messages = messages %}{% set system_message = " +
         no_system +
         " %}{% endif %}{% for message in loop_messages %}"
         "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
         "{{ raise_exception('Roles must alternate') }}{% endif %}"
         "{% if loop.index0 == 0 and system_message != false %}{% set content = " +
         literal("<<SYS>>\\n") + " + system_message + " + literal("\\n<</SYS>>\\n\\n") +
         " + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}"
         "{% if message['role'] == 'user' %}{{ bos_token + " +
         literal("[INST] ") + " + content" + strip + " + " + literal(" [/INST]") +
         " }}{% elif message['role'] == 'assistant' %}{{ " + literal(" ") + "  + content" + strip +
         " + " + literal(" ") + " + eos_token }}{% endif %}{% endfor %}";
}

std::string zephyr(const std::string& end) {
  return "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\\n' + "
         "message['content'] + eos_token }}" +
         end +
         "{% elif message['role'] == 'system' %}\n"
         "{{ '<|system|>\n' + message['content'] + eos_token }}\n"
         "{% elif message['role'] == 'assistant' %}\n"
         "{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n"
         "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n"
         "{% endfor %}";
}

/// A tokenizer with these control tokens, the first two as BOS and EOS ("" for none).
TokenizerSpec spec_with(const std::vector<std::string>& names) {
  TokenizerSpec spec = test::byte_spec();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) continue;
    const std::int32_t id = test::add_named(spec, names[i]);
    if (i == 0) spec.bos_id = id;
    if (i == 1) spec.eos_id = id;
  }
  return spec;
}

const TokenizerSpec kLlama3Spec = spec_with({"<|begin_of_text|>", "<|eot_id|>", "<|end_of_text|>",
                                             "<|start_header_id|>", "<|end_header_id|>"});
const TokenizerSpec kLlama2Spec = spec_with({"<s>", "</s>"});
const TokenizerSpec kChatMlSpec = spec_with({"<|endoftext|>", "<|im_end|>", "<|im_start|>"});

std::optional<RecognisedTemplate> recognise(const std::string& jinja) {
  for (const TokenizerSpec* spec : {&kLlama3Spec, &kLlama2Spec, &kChatMlSpec}) {
    if (const auto recognised = recognise_chat_template(jinja, *spec)) return recognised;
  }
  return std::nullopt;
}

void expect_kind(const std::string& jinja, ChatFormatKind kind, const std::string& system = {}) {
  const auto recognised = recognise(jinja);
  ASSERT_TRUE(recognised) << jinja;
  EXPECT_EQ(recognised->kind, kind) << jinja;
  EXPECT_EQ(recognised->default_system, system) << jinja;
}

TEST(ChatTemplate, NoTemplateIsABaseModel) { expect_kind("", ChatFormatKind::kNone); }

TEST(ChatTemplate, RecognisesLlama3WithAndWithoutSwitch) {
  expect_kind(llama3() + kHeader, ChatFormatKind::kLlama3);
  expect_kind(llama3() + kSwitchedHeader, ChatFormatKind::kLlama3);
  // Some leave the start token to the tokenizer.
  expect_kind(llama3("message['content'] | trim", "content") + kHeader, ChatFormatKind::kLlama3);
}

TEST(ChatTemplate, RecognisesLlama31AndItsClockVariant) {
  expect_kind(llama31(kFixedDate), ChatFormatKind::kLlama31);
  expect_kind(llama31("{%- if strftime_now is defined %}\n"
                      "        {%- set date_string = strftime_now(\"%d %b %Y\") %}\n"
                      "    {%- else %}\n        " +
                      kFixedDate + "\n    {%- endif %}"),
              ChatFormatKind::kLlama31);
}

TEST(ChatTemplate, RecognisesLlama32Vision) {
  expect_kind(kVision, ChatFormatKind::kLlama32Vision);
}

/// One loop over all messages, whose contents are texts or lists of parts.
std::string plain_loop(const std::string& image) {
  return "{{- bos_token }}{%- for m in messages %}"
         "{{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' }}"
         "{%- if m['content'] is string %}{{- m['content'] }}{%- else %}"
         "{%- for c in m['content'] %}{%- if c['type'] == 'image' %}" +
         image +
         "{%- elif c['type'] == 'text' %}{{- c['text'] }}{%- endif %}{%- endfor %}{%- endif %}"
         "{{- '<|eot_id|>' }}{%- endfor %}" +
         kSwitchedHeader;
}

TEST(ChatTemplate, RecognisesPlainContentsWithAndWithoutImages) {
  expect_kind(plain_loop("{{- '<|image|>' }}"), ChatFormatKind::kLlama3Plain);
  expect_kind(llama3("message['content']") + kSwitchedHeader, ChatFormatKind::kLlama3Plain);
  // Images that look otherwise, or stand elsewhere, are not guessed at.
  EXPECT_FALSE(recognise(plain_loop("{{- '<|image|>\n' }}")));
  std::string moved = kVision;
  const std::string parts = "{{- content['text'] }}";
  moved.replace(moved.find(parts), parts.size(), "{{- content['text'] + '<|image|>' }}");
  EXPECT_FALSE(recognise(moved));
}

TEST(ChatTemplate, RecognisesLlama2) {
  for (const std::string strip : {".strip()", " | trim"}) {
    for (const std::string quote : {"'", "\""}) {
      expect_kind(llama2(strip, quote), ChatFormatKind::kLlama2);
    }
  }
  EXPECT_FALSE(recognise(llama2("", "'")));
  EXPECT_FALSE(recognise(llama2(".strip()", "'", "'You are helpful'")));
  // Mistral's: no system text, other spaces.
  EXPECT_FALSE(recognise(
      "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' "
      "+ message['content'] + ' [/INST]' }}{% else %}{{ message['content'] + eos_token }}{% endif "
      "%}{% endfor %}"));
}

TEST(ChatTemplate, RecognisesZephyr) {
  expect_kind(zephyr("\n"), ChatFormatKind::kZephyr);
  EXPECT_FALSE(recognise(zephyr("")));
  EXPECT_FALSE(recognise("{{ bos_token }}" + zephyr("\n")));
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
  EXPECT_FALSE(recognise(  // in front of every message
      chatml("{{ '<|im_start|>system\nBe nice<|im_end|>\n' }}")));
}

TEST(ChatTemplate, RecognisesChatMlBehindBos) {
  expect_kind("{{bos_token}}" + chatml(""), ChatFormatKind::kChatMlBos);
  expect_kind(chatml("{% if loop.first %}{{ bos_token }}{% endif %}"), ChatFormatKind::kChatMlBos);
  const std::string system =
      "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nBe <kind>.<|im_end|>\n' }}"
      "{% endif %}";
  expect_kind("{{ bos_token }}" + system + chatml(""), ChatFormatKind::kChatMlBos, "Be <kind>.");
  // BOS in front of every message, or behind the system text, is another layout.
  EXPECT_FALSE(recognise(chatml("{{ bos_token }}")));
  EXPECT_FALSE(recognise(system + "{{ bos_token }}" + chatml("")));
  // A tokenizer without BOS prints nothing there.
  const auto without = recognise_chat_template("{{ bos_token }}" + chatml(""),
                                               spec_with({"", "<|im_end|>", "<|im_start|>"}));
  ASSERT_TRUE(without);
  EXPECT_EQ(without->kind, ChatFormatKind::kChatMl);
}

// One word is enough to make another layout of a template that looks the same.
TEST(ChatTemplate, DoesNotGuess) {
  const std::string trimmed = "message['content'] | trim";
  const std::string nothink = "message['content'].split('</think>')[-1]";
  const std::vector<std::string> others = {
      "{{ '<|user|>\n' + message['content'] }}",
      "{{ '[INST] ' + message['content'] + ' [/INST]' }}",
      "Hello." + llama3() + kHeader,
      llama3() + kHeader + "<think>\n",
      llama3(),  // no header of the answer
      llama3("message['content'].rstrip()") + kHeader,
      llama3("'Q: ' + " + trimmed) + kHeader,
      llama3(trimmed + " + ' /no_think'") + kHeader,
      llama3(trimmed + " | upper") + kHeader,
      llama3(trimmed, "bos_token + bos_token + content") + kHeader,
      llama3("(" + nothink + ") | trim") + kHeader,
      "{% set messages = messages[-1:] %}" + llama3() + kHeader,
      "{% set messages = messages | rejectattr('role', 'equalto', 'system') | list %}" + llama3() +
          kHeader,
      "{{ '<|start_header_id|>system<|end_header_id|>\n\nBe nice.<|eot_id|>' }}" + llama3() +
          kHeader,
      llama31("{%- set date_string = \"1 Jan 2020\" %}"),
      "{{ bos_token + bos_token }}" + chatml(""),
      "{{ eos_token }}" + chatml(""),
      chatml("", "message['content'] | trim"),
      chatml("", nothink),
      chatml("") + "{{ '<think>' }}",
      chatml("{% if message.role == 'user' %}{{ '\n' }}{% endif %}"),
  };
  for (const std::string& jinja : others) EXPECT_FALSE(recognise(jinja)) << jinja;
}

TEST(ChatTemplate, FollowsTheLanguage) {
  const std::vector<std::string> same = {
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
      "{% if ns.n != messages | length %}wrong{% endif %}",
      "{% for a, b in {'x': 1, 'y': 2}.items() %}{% if loop.last and b != 2 %}wrong{% endif %}"
      "{% endfor %}",
      "{{- '' if messages is defined and nothing is not defined else 'wrong' -}}",
      "{% if messages[-1]['role'] not in ['system', 'user', 'assistant', 'ipython'] %}wrong{% "
      "endif %}",
      "{% set text %}  inner {% endset %}{% if text | trim != 'inner' %}wrong{% endif %}",
      "{% if not ('a' ~ 1 == 'a1' and 7 // 2 == 3 and 7 % 2 == 1 and -1 < 0) %}wrong{% endif %}",
      "{% if 'x-y'.split('-')[1] != 'y' or 'abc'.startswith('b') %}wrong{% endif %}",
      "{% if messages | selectattr('role', 'equalto', 'none') | list | length > 0 %}wrong{% endif "
      "%}",
      "{% for m in [] %}wrong{% else %}{% endfor %}",
      "{% for c in '\u00c4b' %}{% if loop.last and c != 'b' or loop.first and c != '\u00c4' %}wrong"
      "{% endif %}{% endfor %}",
      "  {% if true %}\n  {% endif %}\n  {# a comment #}\n",
      "{% if none is none and (none or 'x') == 'x' and ['a', 'b'] | join('+') == 'a+b' %}"
      "{% elif true %}wrong{% endif %}",
  };
  for (const std::string& before : same) {
    expect_kind(before + llama3() + kHeader, ChatFormatKind::kLlama3);
    EXPECT_FALSE(recognise(before + "." + llama3() + kHeader)) << before;
  }
  for (const std::string unknown :
       {"{% macro f() %}{% endmacro %}", "{{ f(1) }}", "{{ '' | indent }}", "{{ x is odd }}",
        "{% if true %}", "{{ 'a", "{{ ) }}", "{% endif %}", "{# never ends", "{{ [1 }}"}) {
    EXPECT_FALSE(recognise(unknown + llama3() + kHeader)) << unknown;
  }
}

// A text that the template prints once more wherever this holds.
std::string if_true(const std::string& condition) {
  return "{% if " + condition + " %}wrong{% endif %}" + llama3() + kHeader;
}

TEST(ChatTemplate, ValuesBehaveAsInPython) {
  for (const std::string wrong :
       {"not ((2 > 1) == 1 and [true] == [1] and true in [1])", "1 == '1'", "none.foo is defined",
        "'a' != nothing and false", "not ('a' != nothing)", "not (nothing is iterable)",
        "not (true is number)", "not ({'a': 1, 'b': 2} == {'b': 2, 'a': 1})",
        "not ('x' ~ 1 + 1 ~ 'y' is defined) and false", "not ('a' == 'a' is string) and false",
        "not (tools is defined and tools is none)", "not (strftime_now is defined)",
        "not (-1 | string == '-1')", "'a' + 'b' ~ 1 != 'ab1'", "pad is defined"}) {
    expect_kind(if_true(wrong), ChatFormatKind::kLlama3);
    EXPECT_FALSE(recognise(if_true("not (" + wrong + ")"))) << wrong;
  }
}

// Whatever cannot be followed here may be printed by the model's own template in some way.
TEST(ChatTemplate, RefusesWhatItCannotFollow) {
  for (const std::string unknown : {"'%s' % messages",
                                    "'-' * 5",
                                    "1.5 + 1 > 2",
                                    "['a'].count",
                                    "'a'.upper",
                                    "{}.items",
                                    "messages[0].values",
                                    "1 < 2 < 3",
                                    "1 == 1 == 1",
                                    "'a' + 1",
                                    "nothing.foo",
                                    "nothing + 'a'",
                                    "true + 1",
                                    "{1: 2}",
                                    "pad_token",
                                    "messages | tojson",
                                    "'a-b'.split(sep='-')",
                                    "messages | map(attribute='a.b')",
                                    "'x' | default('y', boolean=true)",
                                    "[1][true]",
                                    "18446744073709551615 + 1",
                                    "1.2.3",
                                    "none in messages[0].role",
                                    "strftime_now('%d %B %Y')"}) {
    for (const std::string& jinja : {if_true(unknown), if_true("not (" + unknown + ")")}) {
      EXPECT_FALSE(recognise(jinja)) << jinja;
    }
  }
  // Also where it is met in one conversation only.
  EXPECT_FALSE(recognise(if_true("messages | length == 4 and '-' * 5")));
}

TEST(ChatTemplate, TakesTheTokensOfTheSource) {
  const std::string ends =
      "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + "
      "m['content'] + eos_token + '\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
      "{% endif %}";
  const auto chatml_kind = recognise_chat_template(ends, kChatMlSpec);
  ASSERT_TRUE(chatml_kind);
  EXPECT_EQ(chatml_kind->kind, ChatFormatKind::kChatMl);
  EXPECT_FALSE(recognise_chat_template(ends, spec_with({"<s>", "</s>", "<|im_start|>"})));
  EXPECT_FALSE(recognise_chat_template(ends, spec_with({"", "", "<|im_start|>", "<|im_end|>"})));

  std::string llama = llama3() + kHeader;
  llama.replace(llama.find("'<|eot_id|>'"), 12, "eos_token");
  EXPECT_TRUE(recognise_chat_template(llama, kLlama3Spec));
  EXPECT_FALSE(recognise_chat_template(
      llama, spec_with({"<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>",
                        "<|end_header_id|>"})));
  // Another BOS is what the format writes too.
  EXPECT_TRUE(recognise_chat_template(llama3() + kHeader, spec_with({"<s>", "<|eot_id|>"})));
  EXPECT_FALSE(recognise_chat_template(llama3() + kHeader, spec_with({"", "<|eot_id|>"})));
  EXPECT_FALSE(recognise_chat_template(llama2(".strip()", "'"), spec_with({"<s>", ""})));
  // What Zephyr has as text is a control token in some models.
  EXPECT_TRUE(recognise_chat_template(zephyr("\n"), kLlama2Spec));
  EXPECT_FALSE(recognise_chat_template(zephyr("\n"), spec_with({"<s>", "</s>", "<|user|>"})));
}

TEST(ChatTemplate, RefusesSystemTextsThatCannotBeKept) {
  const auto with_system = [](const std::string& text) {
    return chatml(
        "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n" + text +
        "<|im_end|>\n' }}{% endif %}");
  };
  expect_kind(with_system("A <b> text"), ChatFormatKind::kChatMl, "A <b> text");
  EXPECT_FALSE(recognise_chat_template(with_system("A <|im_start|> text"), kChatMlSpec));
  EXPECT_FALSE(recognise_chat_template(
      with_system("A <tool> text"),
      spec_with({"<|endoftext|>", "<|im_end|>", "<|im_start|>", "<tool>"})));
  const std::string clock = "' + strftime_now('%d %b %Y') + '";
  EXPECT_FALSE(recognise(with_system("Today is " + clock + ".")));
}

// Each template differs from a known one in a case that a few short conversations do not show.
TEST(ChatTemplate, SeesRareCases) {
  const std::string system = "messages[0]['role'] == 'system'";
  const auto refuses = [](const std::string& condition) {
    return "{% if " + condition + " %}{{ raise_exception('no') }}{% endif %}";
  };
  for (const std::string& known : {llama3() + kHeader, chatml("")}) {
    EXPECT_TRUE(recognise(known));
    for (const std::string& before :
         {refuses(system), refuses("messages | length > 8"),
          refuses("messages | length > 1 and messages[0].role == messages[1].role"),
          std::string("{% if messages | length > 8 %}Long.{% endif %}"),
          std::string("{% set messages = messages[-8:] %}"),
          std::string("{% if messages[0].content | length > 1000 %}Long.{% endif %}")}) {
      EXPECT_FALSE(recognise(before + known)) << before;
    }
  }
  for (const std::string mark : {"</think>", "[/THINK]"}) {
    const std::string cut = "message['content'].split('" + mark + "')[-1]";
    EXPECT_FALSE(recognise(chatml("", cut))) << mark;
  }
  EXPECT_FALSE(
      recognise("{% if messages[-1].role == 'ipython' %}Tool.{% endif %}" + llama3() + kHeader));
}

// White space is what Python takes for it.
TEST(ChatTemplate, StripsAsPythonDoes) {
  const std::string content = "message['content']";
  for (const std::string& same :
       {content + ".strip()", content + " | string | trim", content + ".lstrip().rstrip()"}) {
    expect_kind(llama3(same) + kHeader, ChatFormatKind::kLlama3);
  }
  for (const std::string& other :
       {content + ".rstrip()", content + ".lstrip()", content + ".strip(' \n')",
        content + ".strip(' \t\n\r\v\f')", content + ".strip('\n')", content + ".strip('\u00e9')",
        content + " | trim | replace('\n', ' ')"}) {
    EXPECT_FALSE(recognise(llama3(other) + kHeader)) << other;
  }
  for (const std::string& other :
       {content + ".strip()", content + ".rstrip('\n')", content + ".strip('\t')",
        content + ".replace('\r\n', '\n')", content + ".replace('\n\n\n', '\n\n')"}) {
    EXPECT_FALSE(recognise(chatml("", other))) << other;
  }
}

// What a message is may depend on its content, and on its neighbours.
TEST(ChatTemplate, SeesConditionsOnMessages) {
  const std::string known = chatml("");
  const auto print = [](const std::string& condition) {
    return "{% for m in messages %}{% if " + condition + " %}!{% endif %}{% endfor %}";
  };
  for (const std::string condition :
       {"not m.content",
        "not m.content.strip()",
        "m.content.startswith('\n\n')",
        "m.content.endswith('\t')",
        "'/no_think' in m.content",
        "'<tool_call>' in m.content",
        "'<|im_end|>' in m.content",
        "'[INST]' in m.content",
        "'{{' in m.content",
        "m.content == 'None'",
        "m.content[0:1] == ['x']",
        "'\u00c4' in m.content",
        "m.role == 'system' and loop.index0 == 1",
        "m.role == 'system' and loop.last",
        "m.role == 'system' and loop.length == 1",
        "m.role == 'assistant' and loop.first",
        "loop.index0 == 12",
        "loop.index0 == 40",
        "m.role == 'system' and loop.index0 > 0 and loop.previtem.role == 'system'",
        "m.role == 'assistant' and loop.index0 > 0 and loop.previtem.role == 'assistant'"}) {
    EXPECT_FALSE(recognise(print(condition) + known)) << condition;
  }
  // Empty messages that vanish, or are not allowed.
  const auto replaced = [](std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_FALSE(recognise(
      replaced(replaced(known, "%}{{'<|im_start|>'", "%}{% if message.content %}{{'<|im_start|>'"),
               "'\n'}}{% endfor %}", "'\n'}}{% endif %}{% endfor %}")));
  EXPECT_FALSE(
      recognise("{% for m in messages %}{% if not m.content %}{{ raise_exception('') }}"
                "{% endif %}{% endfor %}" +
                known));
}

TEST(ChatTemplate, SeesImagesInLaterTurnsAndAlone) {
  const std::string image = "{{- '<|image|>' }}";
  EXPECT_TRUE(recognise(plain_loop(image)));
  for (const std::string other :
       {"{%- if loop.first and not loop.last %}{{- '<|image|>' }}{%- elif loop.last %}"
        "{{- '<|image|>' }}{%- endif %}",
        "{%- if m['content'] | length > 1 %}{{- '<|image|>' }}{%- endif %}"}) {
    EXPECT_FALSE(recognise(plain_loop(other))) << other;
  }
}

// A template that prints the date on one day only is not the same on another.
TEST(ChatTemplate, IsTheSameOnOtherDays) {
  const std::string clock = "{% if strftime_now('%d %b %Y') != '26 Jul 2024' %}!{% endif %}";
  for (const std::string& known : {llama3() + kHeader, chatml(""), llama31(kFixedDate)}) {
    EXPECT_TRUE(recognise(known));
    EXPECT_FALSE(recognise(clock + known)) << known;
  }
}

TEST(ChatTemplate, BoundsTheWorkOfHostileTemplates) {
  const auto start = std::chrono::steady_clock::now();
  std::string sums = "{{ 1", nested = "{{ ", doubled = "{% set x = 'aaaaaaaa' %}", lists = doubled;
  for (int i = 0; i < 50000; ++i) sums += "+1";
  for (int i = 0; i < 20000; ++i) nested += "((";
  for (int i = 0; i < 64; ++i) {
    doubled += "{% set x = x + x %}";
    lists += "{% set x = [x, x] %}";
  }
  std::string loops;
  for (int i = 0; i < 12; ++i) loops += "{% for a in 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' %}";
  const std::string replaces =
      "{% set x = 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' %}"
      "{% set x = x.replace('a', x) %}{% set x = x.replace('a', x) %}"
      "{% set x = x.replace('a', x) %}{% set x = x.replace('a', x) %}";
  std::string elses = "{% if false %}";
  for (int i = 0; i < 9000; ++i) elses += "{% elif false %}";
  for (const std::string& jinja :
       {sums + " }}", nested, doubled, lists, loops, replaces, elses, std::string(1 << 20, ' ')}) {
    EXPECT_FALSE(recognise(jinja + llama3() + kHeader));
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 60);
}

TEST(ChatTemplate, SurvivesTornTemplates) {
  for (const std::string& jinja :
       {llama31(kFixedDate), kVision, llama2(".strip()", "'"), zephyr("\n"),
        chatml("{{ '<|im_start|>system\nx<|im_end|>' }}")}) {
    for (std::size_t length = 0; length < jinja.size(); length += 3) {
      EXPECT_NO_THROW(recognise(jinja.substr(0, length)));
    }
  }
}

}  // namespace
}  // namespace caravan::text
