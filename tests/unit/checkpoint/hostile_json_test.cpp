// Every JSON file of a source that is broken, nested too deep, or has a key twice: refused, and
// named.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "caravan/checkpoint/architecture.h"
#include "caravan/checkpoint/source.h"
#include "caravan/core/error.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace caravan::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

struct JsonFile {
  const char* model;
  const char* name;
  const char* left_out = "";  // a file that would be read instead
};

class HostileJson : public testing::TestWithParam<JsonFile> {
 protected:
  void SetUp() override {
    const fs::path model = fs::path(CARAVAN_TEST_DATA) / "checkpoints" / GetParam().model;
    fs::create_directory(folder_.file("model"));
    for (const auto& entry : fs::directory_iterator(model)) {
      const std::string name = entry.path().filename().string();
      if (name != GetParam().name && name != GetParam().left_out)
        fs::create_symlink(entry.path(), folder_.file("model/" + name));
    }
    if (fs::exists(model / GetParam().name)) good_ = test::read_whole(model / GetParam().name);
  }

  /// The good file with `members` in front of the others.
  std::string with(const std::string& members) const {
    std::string text = good_;
    return text.insert(text.find('{') + 1, members);
  }
  void expect_refusal(const std::string& text, const std::string& fault) const {
    const std::string path = folder_.write("model/" + std::string(GetParam().name), text);
    expect_error<InputError>([&] { open_source(folder_.file("model"), {}); }, path + ": " + fault);
  }

  test::TemporaryFolder folder_;
  std::string good_ = R"({"last": 0})";
};

TEST_P(HostileJson, IsRefusedWithItsName) {
  expect_refusal("{\n\"a\": }", "not valid JSON at line 2, column 6: ");
  for (const char* bracket : {"[", "{\"a\":"}) {
    std::string deep = "\"deep\": ";
    for (int i = 0; i < 200000; ++i) deep += bracket;
    expect_refusal(with(deep), "lists and objects are nested more than 100 deep at ");
  }
  expect_refusal(with(R"("twice": 1, "twice": 2, )"), "the key \"twice\" is there twice");
}

INSTANTIATE_TEST_SUITE_P(
    Files, HostileJson,
    testing::Values(JsonFile{"tiny-vision", "config.json"},
                    JsonFile{"tiny-vision", "generation_config.json"},
                    JsonFile{"tiny-vision", "preprocessor_config.json"},
                    JsonFile{"tiny-llama31", "tokenizer.json"},
                    JsonFile{"tiny-llama31", "tokenizer_config.json"},
                    JsonFile{"tiny-llama2", "tokenizer_config.json", "tokenizer.json"},
                    JsonFile{"tiny-llama2", "special_tokens_map.json"},
                    JsonFile{"tiny-llama2", "added_tokens.json", "tokenizer_config.json"},
                    JsonFile{"tiny-llama2", "chat_template.json"},
                    JsonFile{"tiny-llama3", "model.safetensors.index.json"},
                    JsonFile{"tiny-llama31-meta", "params.json"},
                    JsonFile{"tiny-vision-tune", "builder_args.json"}),
    [](const auto& file) {
      std::string name = fmt::format("{}_{}_{}", file.index, file.param.model, file.param.name);
      for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
      return name;
    });

TEST(HostileArchitecture, IsRefusedWithItsName) {
  const test::TemporaryFolder folder;
  const std::string path = folder.write("config.json", std::string(400000, '['));
  expect_error<InputError>([&] { read_architecture(path); },
                           path + ": lists and objects are nested more than 100 deep");
}

}  // namespace
}  // namespace caravan::checkpoint
