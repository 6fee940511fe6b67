// Tokenizer and chat format of a source, against each other and the model's sizes.

#include <gtest/gtest.h>

#include <filesystem>

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

/// A post-processor that puts a token before every text.
json prefix_of(const std::string& token) {
  return {{"type", "TemplateProcessing"},
          {"single",
           {{{"SpecialToken", {{"id", token}, {"type_id", 0}}}},
            {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
          {"pair", json::array()},
          {"special_tokens", json::object()}};
}

/// As Hermes has it: Llama 3's BOS before every text, ChatML in chats.
struct ChatMlOnLlama : testing::Test {
  void SetUp() override {
    folder.write();
    json tokenizer = json::parse(io::read_text_file(folder.file("tokenizer.json"), 1 << 24));
    tokenizer["post_processor"] = prefix_of("<|endoftext|>");
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

// Code Llama 70B, Mistral and Llama 2 have the same files and three layouts.
TEST(SourceChatFormat, IsNotGuessedFromAName) {
  struct Case {
    const char* folder;
    const char* possible;
  };
  for (const Case& meta :
       {Case{"tiny-llama2-meta", "llama2|zephyr)"},
        Case{"tiny-llama31-meta", "llama2|llama3|llama3-plain|llama3.1|llama3.2-vision|zephyr)"},
        Case{"tiny-vision-meta", "llama2|llama3|llama3-plain|llama3.1|llama3.2-vision|zephyr)"}}) {
    for (const char* name :
         {"Llama-2-7b-chat", "CodeLlama-70b-Instruct", "Mistral-7B-Instruct-v0.2"}) {
      test::TemporaryFolder folder;
      std::filesystem::create_directory_symlink(test::kCheckpoints + "/" + meta.folder,
                                                folder.file(name));
      const Opened source = open(folder.file(name));
      EXPECT_EQ(source.description.chat_format, ChatFormatKind::kNone) << name;
      EXPECT_EQ(source.description.name, name);
      EXPECT_NE(source.log.find(std::string("choose its format with --chat-format, now or for a "
                                            "run (its tokenizer allows ") +
                                meta.possible),
                std::string::npos)
          << source.log;
      const SourceOptions chosen = {.chat_format = ChatFormatKind::kNone};
      EXPECT_EQ(open(folder.file(name), chosen).log.find("has no chat template"),
                std::string::npos);
    }
  }
}

/// The tokenizer of 1531 ids with these entries of added_tokens.json and special_tokens_map.json.
Opened open_with_added(const HfFolder& folder, const json& added, const json& special) {
  folder.write("added_tokens.json", added.dump());
  folder.write("special_tokens_map.json", special.dump());
  return open(folder.path());
}

// "<pad>": 32000 beside 32000 rows, as the first uploads of Llama 2 have it.
TEST(SourceTokenizer, LeavesOutAddedTokensWithoutARow) {
  HfFolder folder;
  folder.write();
  const Opened plain = open(folder.path());
  EXPECT_EQ(plain.log.find("left out"), std::string::npos) << plain.log;
  const text::Tokenizer expected(plain.description.tokenizer);
  const std::string text = "a <pad> and a <more> b";
  for (const json& special : {json::object(), json{{"pad_token", "<pad>"}}}) {
    const Opened source = open_with_added(folder, {{"<pad>", 1531}, {"<more>", 1600}}, special);
    EXPECT_NE(source.log.find("2 token(s) of the tokenizer have no row in the model's 1531"),
              std::string::npos)
        << source.log;
    EXPECT_NE(source.log.find("\"<pad>\" (id 1531), \"<more>\" (id 1600)"), std::string::npos);
    EXPECT_EQ(source.description.tokenizer, plain.description.tokenizer);
    const text::Tokenizer tokenizer(source.description.tokenizer);
    EXPECT_EQ(tokenizer.encode(text), expected.encode(text));
    EXPECT_EQ(tokenizer.encode_with_special(text), expected.encode_with_special(text));
    EXPECT_EQ(tokenizer.special_id("<pad>"), std::nullopt);
  }
}

TEST(SourceTokenizer, LeavesThemOutOfBothFormsOfLlama2) {
  test::TemporaryFolder folder;
  std::filesystem::copy(test::kCheckpoints + "/tiny-llama2", folder.file("m"));
  for (int form = 0; form < 2; ++form) {
    const text::TokenizerSpec plain = open(folder.file("m")).description.tokenizer;
    EXPECT_EQ(plain.scores.empty(), form == 0);
    folder.write("m/added_tokens.json", R"({"<pad>": 2000})");
    const Opened source = open(folder.file("m"));
    EXPECT_NE(source.log.find("\"<pad>\" (id 2000)"), std::string::npos) << source.log;
    EXPECT_EQ(source.description.tokenizer, plain);
    std::filesystem::remove(folder.file("m/added_tokens.json"));
    std::filesystem::remove(folder.file("m/tokenizer.json"));  // tokenizer.model is next
  }
}

TEST(SourceTokenizer, MayBeNamed) {
  HfFolder folder;
  folder.write();
  const ModelDescription expected = open(folder.path()).description;
  const std::string elsewhere = folder.beside("elsewhere");
  std::filesystem::create_directory(elsewhere);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    std::filesystem::rename(folder.file(name), elsewhere + "/" + name);
  expect_error<InputError>([&] { open(folder.path()); },
                           "--tokenizer FILE takes it from elsewhere");
  for (const std::string& named : {elsewhere, elsewhere + "/tokenizer.json"}) {
    const ModelDescription got = open(folder.path(), {.tokenizer = named}).description;
    EXPECT_EQ(got.tokenizer, expected.tokenizer);
    EXPECT_EQ(got.chat_format, expected.chat_format);
    EXPECT_EQ(got.chat_template, expected.chat_template);
    EXPECT_EQ(got.generation.stop_ids, expected.generation.stop_ids);
  }
  // The source's own template stays.
  folder.write("chat_template.jinja", "{{ bos_token }}" + kChatMl);
  EXPECT_EQ(open(folder.path(), {.tokenizer = elsewhere}).description.chat_default_system, "");
  expect_error<MissingInputError>([&] { open(folder.path(), {.tokenizer = elsewhere + "/none"}); },
                                  "elsewhere/none");
}

TEST(SourceOfMistral, WarnsOfTheWindowThatAGgufDoesNotName) {
  const test::TemporaryFolder folder;
  const auto log_of = [&](std::int64_t positions, float theta) {
    auto config = test::small_gguf_config();
    config.max_positions = positions;
    test::GgufBuilder gguf = test::gguf_model(config);
    gguf.f32("llama.rope.freq_base", theta);
    return open(folder.write("m.gguf", gguf.file())).log;
  };
  EXPECT_NE(log_of(32768, 10000).find("sliding window of 4096"), std::string::npos);
  EXPECT_EQ(log_of(32768, 1e6).find("sliding window"), std::string::npos);
  EXPECT_EQ(log_of(4096, 10000).find("sliding window"), std::string::npos);
}

TEST(SourceTokenizer, OfAGgufMayBeNamed) {
  auto config = test::small_gguf_config();
  config.vocab_size = 260;
  test::TemporaryFolder folder;
  const std::string path = folder.write("m.gguf", test::gguf_model(config).file());
  const text::TokenizerSpec own = open(path).description.tokenizer;
  const std::string uneven = test::kCheckpoints + "/tiny-uneven";
  expect_error<InputError>([&] { open(path, {.tokenizer = uneven}); },
                           "it is the tokenizer of another model");
  json small = json::parse(io::read_text_file(uneven + "/tokenizer.json", 1 << 24));
  json vocab = json::object();
  for (const auto& [name, id] : small["model"]["vocab"].items()) {
    if (id < 260) vocab[name] = id;
  }
  small["model"]["vocab"] = vocab;
  small["model"]["merges"] = json::array();
  std::erase_if(small["added_tokens"].get_ref<json::array_t&>(),
                [](const json& added) { return added["id"] >= 260; });
  const std::string file = folder.write("tokenizer.json", small.dump());
  const ModelDescription named = open(path, {.tokenizer = file}).description;
  EXPECT_NE(named.tokenizer, own);
  EXPECT_EQ(named.tokenizer.tokens.size(), 260U);
}

TEST(SourceTokenizer, RefusesThatOfAnotherModel) {
  auto config = test::small_config();
  config.vocab_size = 1530;  // the last piece has no row
  HfFolder folder(config);
  folder.write();
  expect_error<InputError>([&] { open(folder.path()); },
                           "it is the tokenizer of another model; take that of this one");
  // BOS before every prompt, without a row.
  json tokenizer =
      json::parse(io::read_text_file(test::kCheckpoints + "/tiny-uneven/tokenizer.json", 1 << 24));
  tokenizer["added_tokens"].push_back({{"id", 1531}, {"content", "<s>"}, {"special", true}});
  HfFolder begins;
  begins.write();
  begins.write("tokenizer.json", tokenizer.dump());
  EXPECT_NO_THROW(open(begins.path()));
  tokenizer["post_processor"] = prefix_of("<s>");
  begins.write("tokenizer.json", tokenizer.dump());
  expect_error<InputError>([&] { open(begins.path()); }, "prompts begin with BOS (id 1531)");
}

}  // namespace
}  // namespace caravan::checkpoint
