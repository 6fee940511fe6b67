#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "caravan/batch/prompt_files.h"
#include "caravan/core/error.h"
#include "support/expect_error.h"

namespace caravan::batch {
namespace {

TEST(YamlPrompts, ReadsTheFormsOfPrompts) {
  const std::vector<std::string> forms = {
      "prompt:\n  system: S\n  user:\n    text: U\n",
      "system: S\nuser: U\n",
      "- prompt: {system: {text: S}, user: {text: U}}\n",
  };
  for (const std::string& form : forms) {
    const auto prompts = parse_yaml_prompts(form, "p.yaml");
    ASSERT_EQ(prompts.size(), 1U) << form;
    EXPECT_EQ(prompts[0].system, "S") << form;
    EXPECT_EQ(prompts[0].user, "U") << form;
  }
  EXPECT_TRUE(parse_yaml_prompts("", "p.yaml").empty());
  const auto two = parse_yaml_prompts("- user: a\n- user: b\n  system:\n", "p.yaml");
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(two[1].line, 2);
}

TEST(YamlPrompts, TakesImagesOfTheUser) {
  const auto prompts = parse_yaml_prompts(
      "- user: {text: U, image: a.png}\n"
      "- user:\n    image: [b.png, 'c d.jpg']\n    text: V\n"
      "- user: {image: 'data:image/png;base64,AAAA'}\n",
      "p.yaml");
  ASSERT_EQ(prompts.size(), 3U);
  EXPECT_EQ(prompts[0].images, std::vector<std::string>{"a.png"});
  EXPECT_EQ(prompts[0].user, "U");
  EXPECT_EQ(prompts[1].images, (std::vector<std::string>{"b.png", "c d.jpg"}));
  EXPECT_EQ(prompts[2].images, std::vector<std::string>{"data:image/png;base64,AAAA"});
  EXPECT_EQ(prompts[2].user, "");
}

TEST(YamlPrompts, ReadsEveryDocumentOfAFile) {
  const auto prompts = parse_yaml_prompts("user: a\n---\n- user: b\n- user: c\n---\n", "p.yaml");
  ASSERT_EQ(prompts.size(), 3U);
  EXPECT_EQ(prompts[0].user + prompts[1].user + prompts[2].user, "abc");
}

TEST(YamlPrompts, CountsPromptsThatBeginOnOneLine) {
  const auto prompts = parse_yaml_prompts("[{user: a}, {user: b}]\n", "p.yaml");
  ASSERT_EQ(prompts.size(), 2U);
  EXPECT_EQ(prompts[0].earlier_on_line, 0);
  EXPECT_EQ(prompts[1].earlier_on_line, 1);
}

TEST(YamlPrompts, NamesLineAndFault) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"user: U\nsystem: {text: S, image: a.png}\n",
       "p.yaml:2: system.image: images belong to user:"},
      {"user: {text: U, image: {a: b}}\n", "p.yaml:1: user.image: expected the path"},
      {"user: {text: U, image: [a.png, '']}\n", "p.yaml:1: user.image: expected the path"},
      {"system: S\n", "user: is missing"},
      {"user: U\nuser: V\n", "p.yaml:2: the key \"user\" is there twice"},
      {"user: {text: U, text: V}\n", "the key \"text\" is there twice"},
      {std::string("user: a\0b\n", 10), "NUL"},
      {"user: ''\n", "user: is empty"},
      {"user: [1]\n", "must be a text or a mapping"},
      {"user: U\nuzer: V\n", "p.yaml:2: unknown key \"uzer\""},
      {"- user: U\n- 7\n", "p.yaml:2: expected a mapping"},
      {"prompt: {user: U}\nuser: V\n", "only key"},
      {"user: [\n", "not valid YAML"},
  };
  for (const auto& [text, words] : cases) {
    test::expect_error<InputError>([&text = text] { parse_yaml_prompts(text, "p.yaml"); }, words);
  }
}

}  // namespace
}  // namespace caravan::batch
