// Every kind of source as a user sees it after conversion: inspect, verify, tokenize; and which
// chat templates are taken.

#include <filesystem>

#include "system/program/program_rig.h"

namespace caravan::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kCheckpoints = std::string(CARAVAN_TEST_DATA) + "/checkpoints/";

TEST(Kinds, AreShownAndVerified) {
  const std::vector<std::pair<std::string, Arguments>> kinds = {
      {"tiny-llama2",
       {"Hugging Face folder tiny-llama2",
        "sentencepiece, 2000 tokens, 3 added (3 special), BOS 1 first", "chat format   llama2",
        "rope          base 10000", "stop ids [2]"}},
      {"tiny-llama2-gguf/tiny-llama2-gguf-F16.gguf",
       {"GGUF file tiny-llama2-gguf-F16.gguf, F16", "sentencepiece, 2000 tokens", " as fp16"}},
      {"tiny-llama2-meta", {"Meta folder tiny-llama2-meta, 2 weight file(s)", "sentencepiece"}},
      {"tiny-llama31-meta-bf16",
       {"tiktoken, 2048 tokens", "llama3 scaling by 8 beyond 8192 positions", " as bf16"}},
      {"tiny-llama31-tune/epoch_0", {"torchtune folder", "bpe, 2048 tokens"}},
      {"tiny-llama31-gguf/tiny-llama31-gguf-Q8_0.gguf",
       {"Q8_0", "frequency divisors from the source", " as fp32"}},
      {"tiny-k256-gguf/tiny-k256-gguf-Q4_K_M.gguf", {", Q4_K, Q6_K", "no BOS", "(tied)"}},
      {"tiny-uneven",
       {"chatml", "system text   You are a tiny test model", "9 query heads, 3 key/value heads"}},
  };
  const TemporaryFolder folder;
  const std::string model = folder.file("model.h5");
  for (const auto& [source, shown] : kinds) {
    SCOPED_TRACE(source);
    const ProcessResult converted =
        caravan({"convert", kCheckpoints + source, model, "--overwrite"});
    ASSERT_EQ(converted.code, 0) << converted.err;
    const ProcessResult text = caravan({"inspect", model});
    for (const std::string& part : shown) {
      EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
    }
    const json about = json::parse(caravan({"inspect", model, "--json", "--tensors"}).out);
    std::int64_t bytes = 0;
    std::int64_t elements = 0;
    for (const json& tensor : about.at("tensors")) {
      bytes += tensor.at("bytes").get<std::int64_t>();
      std::int64_t count = 1;
      for (const json& extent : tensor.at("shape")) count *= extent.get<std::int64_t>();
      elements += count;
    }
    EXPECT_EQ(bytes, about.at("weight_bytes"));
    EXPECT_EQ(elements, about.at("parameters"));
    EXPECT_EQ(caravan({"verify", model}).code, 0);
    const ProcessResult ids = caravan({"tokenize", "--model", model, "Hello, 12 of été!"});
    EXPECT_EQ(ids.code, 0) << ids.err;
  }
}

class ChatPolicy : public testing::Test {
 protected:
  void SetUp() override {
    fs::copy(kCheckpoints + "tiny-llama2", folder_.file("model"));
    config_ = json::parse(read_whole(folder_.file("model/tokenizer_config.json")));
  }
  /// Converts with what a test made of the folder; the chat format, or the refusal.
  std::string convert(const Arguments& more = {}) const {
    Arguments arguments = {"convert", folder_.file("model"), folder_.file("m.h5"), "--overwrite"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProcessResult result = caravan(arguments);
    if (result.code == 65) {
      EXPECT_NE(result.err.find("--chat-format none|llama2|"), std::string::npos) << result.err;
      return "refused";
    }
    EXPECT_EQ(result.code, 0) << result.err;
    return json::parse(caravan({"inspect", folder_.file("m.h5"), "--json"}).out).at("chat_format");
  }
  void write_template(const json& value) {
    config_["chat_template"] = value;
    folder_.write("model/tokenizer_config.json", config_.dump());
  }
  std::string llama2() const { return config_.at("chat_template"); }

  TemporaryFolder folder_;
  json config_;
};

TEST_F(ChatPolicy, TemplatesAreFoundInEveryForm) {
  const std::string known = llama2();
  EXPECT_EQ(convert(), "llama2");
  write_template({{{"name", "tool_use"}, {"template", "{{ tools }}"}},
                  {{"name", "default"}, {"template", known}}});
  EXPECT_EQ(convert(), "llama2");
  write_template({{{"name", "tool_use"}, {"template", known}}});  // no default among them
  EXPECT_EQ(convert(), "refused");
  EXPECT_EQ(convert({"--chat-format", "llama2"}), "llama2");
  write_template(json::array());
  EXPECT_EQ(convert(), "none");
  write_template("{{ 'unknown' }}");
  EXPECT_EQ(convert(), "refused");
  folder_.write("model/chat_template.jinja", known);
  EXPECT_EQ(convert(), "llama2");
  folder_.write("model/chat_template.jinja", "{{ messages }}");
  EXPECT_EQ(convert(), "refused");
}

TEST_F(ChatPolicy, AlmostKnownTemplatesAreRefusedUntilOneIsChosen) {
  std::string changed = llama2();
  changed.replace(changed.find("[/INST]"), 7, "[/INST]\\n");
  write_template(changed);
  EXPECT_EQ(convert(), "refused");
  EXPECT_EQ(convert({"--chat-format", "llama2"}), "llama2");
  EXPECT_EQ(convert({"--chat-format", "zephyr"}), "zephyr");
  EXPECT_EQ(convert({"--chat-format", "none"}), "none");
  const ProcessResult base = caravan({"run", "--model", folder_.file("m.h5"), "--prompt", "x",
                                      "--endpoint", "chat", "--max-tokens", "1"});
  EXPECT_EQ(base.code, 65);
  EXPECT_NE(base.err.find("--chat-format"), std::string::npos) << base.err;
}

TEST_F(ChatPolicy, TheFormatCanBeChosenForARun) {
  ASSERT_EQ(convert({"--chat-format", "none"}), "none");
  const ProcessResult chat = caravan(
      {"tokenize", "--model", folder_.file("m.h5"), "--chat", "--chat-format", "llama2", "Hello"});
  ASSERT_EQ(chat.code, 0) << chat.err;
  EXPECT_NE(chat.out.find("INST"), std::string::npos) << chat.out;
}

}  // namespace
}  // namespace caravan::test
