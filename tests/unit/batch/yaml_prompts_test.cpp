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

TEST(YamlPrompts, NotesTheFaultsOfAPromptWithLineAndGoesOn) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"user: U\nsystem: {text: S, image: a.png}\n",
       "line 2: system.image: images belong to user:"},
      {"user: {text: U, image: {a: b}}\n",
       "user.image: expected the path or data: URI of an image, or a list of them"},
      {"user: {text: U, image: [a.png, '']}\n",
       "user.image: expected the path or data: URI of an image, or a list of them"},
      {"system: S\n", "user: is missing"},
      {"user: U\nuser: V\n", "line 2: the key \"user\" is there twice"},
      {"user: {text: U, text: V}\n", "the key \"text\" is there twice"},
      {"user: ''\n", "user: is empty"},
      {"user: [1]\n", "user must be a text or a mapping with text:"},
      {"user: U\nuzer: V\n", "line 2: unknown key \"uzer\"; known are prompt, system and user"},
      {"7\n", "expected a mapping with user: (and system:)"},
      {"prompt: {user: U}\nuser: V\n", "prompt: must be the only key of its mapping"},
      {"sytem: S\n[1]: x\nuser: {txt: U}\n",
       "unknown key \"sytem\"; known are prompt, system and user; line 2: a key must be a word; "
       "line 3: user.txt: expected text: with a string"},
  };
  for (const auto& [text, faults] : cases) {
    const auto alone = parse_yaml_prompts(text, "p.yaml");
    ASSERT_EQ(alone.size(), 1U) << text;
    EXPECT_EQ(alone[0].faults, faults) << text;
  }
  const auto prompts = parse_yaml_prompts("- user: U\n- 7\n- {}\n- user: V\n", "p.yaml");
  ASSERT_EQ(prompts.size(), 4U);
  EXPECT_EQ(prompts[0].faults, "");
  EXPECT_NE(prompts[1].faults, "");
  EXPECT_EQ(prompts[2].faults, "user: is missing");
  EXPECT_EQ(prompts[2].line, 3);
  EXPECT_EQ(prompts[3].user, "V");
  EXPECT_EQ(prompts[3].faults, "");
}

TEST(YamlPrompts, RefusesWhatIsNoYaml) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {std::string("user: a\0b\n", 10), "p.yaml:1: holds a NUL byte"},
      {"user: U\n---\nuser: [\n", "p.yaml:4: not valid YAML"},
  };
  for (const auto& [text, words] : cases) {
    test::expect_error<InputError>([&text = text] { parse_yaml_prompts(text, "p.yaml"); }, words);
  }
}

}  // namespace
}  // namespace caravan::batch
