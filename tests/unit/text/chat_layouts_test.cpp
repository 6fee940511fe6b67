// Layouts other than the plain ones of chat_format_test.cpp: Llama 2, Zephyr, Llama 3.2 Vision, and
// tools.

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "caravan/core/error.h"
#include "support/expect_error.h"
#include "unit/text/chat_prompt.h"

namespace caravan::text {
namespace {

using test::continued;
using test::expect_error;
using test::prompt;
using test::without_prompt;

constexpr auto kLlama2 = ChatFormatKind::kLlama2;
constexpr auto kLlama31 = ChatFormatKind::kLlama31;
constexpr auto kVision = ChatFormatKind::kLlama32Vision;
constexpr auto kZephyr = ChatFormatKind::kZephyr;

TEST(ChatLayouts, Llama2PutsTurnsIntoInst) {
  EXPECT_EQ(prompt(kLlama2, {{"user", " Hi\n"}}), "[s][INST] Hi [/INST]");
  EXPECT_EQ(
      prompt(kLlama2, {{"system", " S "}, {"user", "\n U "}, {"assistant", " A "}, {"user", "V"}}),
      "[s][INST] <<SYS>>\n S \n<</SYS>>\n\n\n U [/INST] A [/s][s][INST] V [/INST]");
  EXPECT_EQ(prompt(kLlama2, {{"user", "U"}, {"assistant", "A"}}), "[s][INST] U [/INST] A [/s]");
  EXPECT_EQ(prompt(kLlama2, {{"user", "U"}, {"assistant", "A "}}, continued()),
            "[s][INST] U [/INST] A");
  EXPECT_EQ(prompt(kLlama2, {{"user", "</s><s>"}}), "[s][INST] </s><s> [/INST]");
}

TEST(ChatLayouts, Llama2RefusesOtherOrders) {
  const auto refuse = [](const std::vector<ChatMessage>& messages, const std::string& words) {
    expect_error<InputError>([&] { prompt(kLlama2, messages); }, words);
  };
  refuse({{"user", "a"}, {"user", "b"}},
         "messages[1]: expected role \"assistant\", found \"user\"");
  refuse({{"assistant", "a"}}, "messages[0]: expected role \"user\"");
  refuse({{"system", "a"}, {"assistant", "b"}}, "messages[1]: expected role \"user\"");
  refuse({{"user", "a"}, {"assistant", "b"}, {"system", "c"}},
         "messages[2]: expected role \"user\"");
  refuse({{"user", "a"}, {"tool", "b"}}, "found \"tool\"");
  refuse({{"system", "a"}}, "but there is none");
}

TEST(ChatLayouts, ZephyrWritesRolesAsText) {
  EXPECT_EQ(prompt(kZephyr, {{"system", " S"}, {"user", "U\n"}}),
            "[s]<|system|>\n S[/s]\n<|user|>\nU\n[/s]\n<|assistant|>\n");
  EXPECT_EQ(prompt(kZephyr, {{"user", "U"}, {"assistant", "A "}}, continued()),
            "[s]<|user|>\nU[/s]\n<|assistant|>\nA ");
  EXPECT_EQ(prompt(kZephyr, {{"user", "U"}, {"assistant", "A"}}, without_prompt()),
            "[s]<|user|>\nU[/s]\n<|assistant|>\nA[/s]\n");
  expect_error<InputError>(
      [&] {
        prompt(kZephyr, {{"tool", "x"}});
      },
      "role \"tool\" does not exist in the chat format zephyr");
}

TEST(ChatLayouts, ZephyrHasABosOnlyWhereTheTokenizerAddsOne) {
  TokenizerSpec spec = test::llama2_tokenizer().spec();
  spec.add_bos = false;
  const Tokenizer tokenizer(spec);
  const auto ids = ChatFormat(kZephyr, tokenizer).render({{"user", "U"}}, {});
  EXPECT_EQ(ids.front(), '<');
}

TEST(ChatLayouts, VisionKeepsTheSpacesOfContents) {
  const std::string block =
      "[begin_of_text][start_header_id]system[end_header_id]\n\nCutting Knowledge Date: December "
      "2023\nToday Date: 26 Jul 2024\n\n";
  EXPECT_EQ(
      prompt(kVision, {{"system", " S "}, {"user", " U "}, {"assistant", "A "}}, without_prompt()),
      block +
          "S[eot_id][start_header_id]user[end_header_id]\n\n U [eot_id]"
          "[start_header_id]assistant[end_header_id]\n\nA [eot_id]");
  EXPECT_EQ(prompt(kVision, {{"user", "U"}, {"assistant", " A "}}, continued()),
            block +
                "[eot_id][start_header_id]user[end_header_id]\n\nU[eot_id]"
                "[start_header_id]assistant[end_header_id]\n\n A ");
}

/// What stands behind the last header.
std::string last_turn(const std::string& prompt_text) {
  constexpr std::string_view kEnd = "[end_header_id]\n\n";
  return prompt_text.substr(prompt_text.rfind(kEnd) + kEnd.size());
}

/// A user message in which each "@" is an image.
ChatMessage with_images(const std::string& marked, const std::string& role = "user") {
  ChatMessage message{role, "", {}};
  for (const char c : marked) {
    if (c == '@') {
      message.image_offsets.push_back(message.content.size());
    } else {
      message.content += c;
    }
  }
  return message;
}

constexpr auto kPlain = ChatFormatKind::kLlama3Plain;

TEST(ChatLayouts, PlainKeepsSpacesAndHasNoSystemBlock) {
  EXPECT_EQ(prompt(kPlain, {{"system", " S "}, {"user", " U\n"}, {"ipython", " 4"}}),
            "[begin_of_text][start_header_id]system[end_header_id]\n\n S [eot_id]"
            "[start_header_id]user[end_header_id]\n\n U\n[eot_id]"
            "[start_header_id]ipython[end_header_id]\n\n 4[eot_id]"
            "[start_header_id]assistant[end_header_id]\n\n");
}

TEST(ChatLayouts, ImagesStandWhereTheyAre) {
  for (const ChatFormatKind kind : {kVision, kPlain}) {
    EXPECT_EQ(prompt(kind, {with_images("@What?"), {"assistant", "A"}, with_images(" a @@b @ ")}),
              "[begin_of_text][start_header_id]user[end_header_id]\n\n[image]What?[eot_id]"
              "[start_header_id]assistant[end_header_id]\n\nA[eot_id]"
              "[start_header_id]user[end_header_id]\n\n a [image][image]b [image] [eot_id]"
              "[start_header_id]assistant[end_header_id]\n\n");
    EXPECT_EQ(last_turn(prompt(kind, {with_images("@")}, without_prompt())), "[image][eot_id]");
    // What a user spells is text.
    EXPECT_EQ(last_turn(prompt(kind, {with_images("<|image|>@")}, without_prompt())),
              "<|image|>[image][eot_id]");
  }
}

TEST(ChatLayouts, VisionHasNoSystemTextBesideImages) {
  expect_error<InputError>(
      [&] {
        prompt(kVision, {{"system", "S"}, with_images("@a")});
      },
      "messages[0].content: the chat format llama3.2-vision has no system message where there are "
      "images");
  EXPECT_EQ(prompt(kVision, {{"system", " \n"}, with_images("@a")}),
            prompt(kVision, {with_images("@a")}));
  EXPECT_EQ(prompt(kPlain, {{"system", "S"}, with_images("@a")}, without_prompt()),
            "[begin_of_text][start_header_id]system[end_header_id]\n\nS[eot_id]"
            "[start_header_id]user[end_header_id]\n\n[image]a[eot_id]");
}

TEST(ChatLayouts, RefusesImagesThatItCannotLayOut) {
  const auto refuse = [](ChatFormatKind kind, const std::vector<ChatMessage>& messages,
                         const ChatOptions& options, const std::string& words) {
    expect_error<InputError>([&] { prompt(kind, messages, options); }, words);
  };
  for (const ChatFormatKind kind : {ChatFormatKind::kLlama3, kLlama31, kLlama2, kZephyr}) {
    refuse(kind, {{"user", "a"}, with_images("@")}, {},
           "messages[1].content: the chat format " + std::string(chat_format_name(kind)) +
               " has no images");
  }
  for (const char* role : {"system", "assistant", "tool"}) {
    refuse(kPlain, {with_images("@", role)}, {}, "messages[0].content: images belong into");
  }
  ChatOptions tools;
  tools.tools = {"{}"};
  refuse(kVision, {with_images("@")}, tools, "which then cannot have images");
  EXPECT_EQ(last_turn(prompt(kVision, {{"user", "a"}, with_images("@")}, tools)), "");
  tools.tools_in_user_message = false;
  refuse(kVision, {{"user", "a"}, with_images("@")}, tools, "no system block");
  const Tokenizer tokenizer = test::llama_tokenizer();
  const ChatFormat reads_text(kVision, tokenizer);
  expect_error<InputError>([&] { reads_text.render({with_images("@")}, {}); },
                           "has no token for an image");
  expect_error<InputError>([&] { reads_text.most_tokens({with_images("@")}, {}); },
                           "has no token for an image");
}

ChatMessage call(const std::string& name, const std::string& arguments) {
  return {"assistant", "not shown", {{name, arguments}}};
}

TEST(ChatLayouts, ToolsKeepTheOrderOfKeysAndPythonsNumbers) {
  ChatOptions options = without_prompt();
  options.tools = {R"({"b":[],"a":{"x":{},"y":[1,-2.50,1e3,1e16,1e-5,0.0001,-0.0,true,null]}})"};
  EXPECT_NE(prompt(kLlama31, {{"user", "Hi "}}, options)
                .find("Do not use variables.\n\n{\n    \"b\": [],\n    \"a\": {\n        \"x\": "
                      "{},\n        \"y\": [\n            1,\n            -2.5,\n            "
                      "1000.0,\n            1e+16,\n            1e-05,\n            0.0001,\n"
                      "            -0.0,\n            true,\n            null\n        ]\n    }\n}"
                      "\n\nHi[eot_id]"),
            std::string::npos);
}

TEST(ChatLayouts, ToolCallsAreOneLineOfJson) {
  EXPECT_EQ(last_turn(prompt(kLlama31, {{"user", "Hi"}, call("f", R"({"b":[1,2],"a":"\u00e9\n"})")},
                             without_prompt())),
            "{\"name\": \"f\", \"parameters\": {\"b\": [1, 2], \"a\": \"\xC3\xA9\\n\"}}[eot_id]");
}

TEST(ChatLayouts, BuiltinToolsAreCalledInPython) {
  ChatOptions options = without_prompt();
  options.builtin_tools = {"brave_search", "code_interpreter"};
  const std::string search = R"({"query":"a \"b\"","n":"1"})";
  const std::string text =
      prompt(kLlama31, {{"user", "Hi"}, call("brave_search", search)}, options);
  EXPECT_NE(text.find("\n\nEnvironment: ipython\nTools: brave_search\n\nCutting"),
            std::string::npos);
  EXPECT_EQ(last_turn(text), "[python_tag]brave_search.call(query=\"a \"b\"\", n=\"1\")[eom_id]");
  EXPECT_EQ(last_turn(prompt(kLlama31, {{"user", "Hi"}, call("other", "{}")}, options)),
            "{\"name\": \"other\", \"parameters\": {}}[eom_id]");
  for (const char* arguments : {R"({"n":1})", "[]", "{"}) {
    expect_error<InputError>(
        [&] {
          prompt(kLlama31, {{"user", "Hi"}, call("brave_search", arguments)}, options);
        },
        "messages[1].tool_calls[0].function.arguments: ");
  }
}

TEST(ChatLayouts, RefusesToolsThatItCannotLayOut) {
  const auto refuse = [](ChatFormatKind kind, const std::vector<ChatMessage>& messages,
                         const ChatOptions& options, const std::string& words) {
    expect_error<InputError>([&] { prompt(kind, messages, options); }, words);
  };
  ChatOptions tools;
  tools.tools = {"{}"};
  ChatOptions builtin;
  builtin.builtin_tools = {"brave_search"};
  for (const ChatFormatKind kind :
       {ChatFormatKind::kLlama3, kPlain, kLlama2, kZephyr, ChatFormatKind::kChatMl}) {
    refuse(kind, {{"user", "a"}}, tools, "has no tools and no tool calls");
    refuse(kind, {{"user", "a"}, call("f", "{}")}, {}, "has no tools and no tool calls");
    refuse(kind, {{"user", "a"}}, builtin, "builtin_tools: the chat format");
  }
  refuse(kVision, {{"user", "a"}}, builtin,
         "builtin_tools: the chat format llama3.2-vision has none");
  refuse(kLlama31, {{"system", "a"}}, tools, "tools go into the first user message");
  refuse(kLlama31, {{"assistant", "a"}, {"user", "b"}}, tools,
         "tools go into the first user message");
  refuse(kLlama31, {{"user", "a"}, {"user", "b", {{"f", "{}"}}}}, {},
         "only an assistant calls tools");
  refuse(kLlama31, {{"user", "a"}, {"assistant", "", {{"f", "{}"}, {"g", "{}"}}}}, {},
         "one call in a message, found 2");
  refuse(kLlama31, {{"user", "a"}, call("f", "{}")}, continued(), "cannot go on with a tool call");
  refuse(kLlama31, {{"user", "a"}, call("f", "{")}, {},
         "messages[1].tool_calls[0].function.arguments: not valid JSON");
  tools.tools = {"{}", "nonsense"};
  refuse(kLlama31, {{"user", "a"}}, tools, "tools[1]: not valid JSON");
  tools.tools = {std::string(1000, '[') + std::string(1000, ']')};
  refuse(kLlama31, {{"user", "a"}}, tools,
         "tools[0]: lists and objects are nested more than 100 deep");
}

// As when the rendered text is tokenized: some control tokens take white space along.
TEST(ChatLayouts, ControlTokensTakeWhiteSpaceAlong) {
  const std::vector<ChatMessage> messages = {{"user", " \tHi\n"}, {"assistant", " \u00a0\n"}};
  const std::string rendered =
      "<|im_start|>user\n \tHi\n<|im_end|>\n<|im_start|>assistant\n \u00a0\n<|im_end|>\n"
      "<|im_start|>assistant\n";
  std::set<std::size_t> sizes;
  for (const auto& [lstrip, rstrip] :
       {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
    TokenizerSpec spec = test::chatml_tokenizer().spec();
    for (text::AddedToken& token : spec.added_tokens) {
      token.lstrip = lstrip;
      token.rstrip = rstrip && token.content == "<|im_end|>";
    }
    const Tokenizer tokenizer(spec);
    const auto ids = ChatFormat(ChatFormatKind::kChatMl, tokenizer).render(messages, {});
    EXPECT_EQ(ids, tokenizer.encode_with_special(rendered));
    sizes.insert(ids.size());
  }
  EXPECT_EQ(sizes.size(), 3U);  // behind <|im_end|> stands what the next token takes, too
}

TEST(ChatLayouts, NeedsBosAndEos) {
  const Tokenizer bare(test::byte_spec());
  expect_error<ConfigError>([&] { ChatFormat(kLlama2, bare); }, "llama2 needs a BOS token");
  expect_error<ConfigError>([&] { ChatFormat(kZephyr, bare); }, "zephyr needs an EOS token");
  const Tokenizer tokenizer = test::llama2_tokenizer();
  EXPECT_EQ(ChatFormat(kLlama2, tokenizer).stop_ids(), std::vector<std::int32_t>{257});
  EXPECT_EQ(ChatFormat(kZephyr, tokenizer).stop_ids(), std::vector<std::int32_t>{257});
}

TEST(ChatLayouts, BoundOfTheTokensHoldsForBytes) {
  ChatOptions options;
  options.tools = {"{\"a\":1}"};
  for (const ChatFormatKind kind : {ChatFormatKind::kLlama3, kLlama31, kVision, kLlama2, kZephyr,
                                    kPlain, ChatFormatKind::kChatMl, ChatFormatKind::kChatMlBos}) {
    const bool has_tools = kind == kLlama31 || kind == kVision;
    const Tokenizer tokenizer = test::tokenizer_for(kind);
    const ChatFormat format(kind, tokenizer, "S", tokenizer.special_id("<|image|>"));
    std::vector<ChatMessage> messages = {{"user", "\xC3\xA9 x"}, {"assistant", "y"}, {"user", "z"}};
    if (kind == kPlain) messages.push_back(with_images("@@ y@"));
    const ChatOptions& used = has_tools ? options : ChatOptions();
    // One token per byte: the bound is reached.
    EXPECT_EQ(format.most_tokens(messages, used), std::ssize(format.render(messages, used)));
  }
}

}  // namespace
}  // namespace caravan::text
