#include "caravan/checkpoint/source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "caravan/checkpoint/convert.h"
#include "caravan/checkpoint/model_file.h"
#include "caravan/core/error.h"
#include "generated_model.h"
#include "support/expect_error.h"

namespace caravan::checkpoint {
namespace {

using nlohmann::json;
using test::expect_error;
using test::GgufBuilder;
using test::HfFolder;
using test::TemporaryFolder;

constexpr const char* kLfsPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";

void expect_refusal(const std::string& path, const std::string& words,
                    const SourceOptions& options = {}) {
  expect_error<InputError>([&] { open_source(path, options); }, words);
}

TEST(HfSource, ReadsDescriptionAndPlaces) {
  HfFolder folder;
  folder.write("generation_config.json", R"({"temperature":0.5,"eos_token_id":[5,2]})");
  const Source source = open_source(folder.write(), {});
  EXPECT_EQ(source.description.name, "small-model");
  EXPECT_EQ(source.description.config, test::small_config());
  EXPECT_EQ(source.description.dtype, DType::kFloat32);
  EXPECT_EQ(source.head_order, HeadOrder::kHalfSplit);
  EXPECT_EQ(source.description.generation.temperature, 0.5);
  EXPECT_EQ(source.description.generation.stop_ids, (std::vector<std::int32_t>{2, 5}));
  EXPECT_EQ(source.description.chat_format, text::ChatFormatKind::kChatMl);
  EXPECT_EQ(source.description.chat_default_system, "You are a tiny test model");
  EXPECT_EQ(source.tensor("text.layer.1.w2").name, "model.layers.1.mlp.down_proj.weight");
  EXPECT_EQ(open_source(folder.path() + "/", {}).description.name, "small-model");
  EXPECT_EQ(open_source(folder.path(), {.name = "a\nb\xff"}).description.name, "a b\xEF\xBF\xBD");
}

TEST(HfSource, RefusesTensorsThatDoNotMatchAllAtOnce) {
  HfFolder folder;
  folder.weights.remove("model.norm.weight");
  folder.weights.add("model.layers.0.self_attn.q_norm.weight", {2}, {1, 2});
  folder.weights.remove("model.layers.1.mlp.up_proj.weight");
  folder.weights.add("model.layers.1.mlp.up_proj.weight", {1, 2}, {1, 2});
  expect_refusal(folder.write(), "model.norm.weight is missing");
  expect_refusal(folder.path(), "model.layers.0.self_attn.q_norm.weight is in the source, but");
  expect_refusal(folder.path(), "up_proj.weight has shape [1, 2], expected [70, 20]");
}

TEST(HfSource, RefusesWeightsOfOtherTypes) {
  HfFolder folder;
  folder.weights.remove("model.norm.weight");
  folder.weights.add_raw("model.norm.weight", "I64", {20}, std::string(160, '\0'));
  expect_refusal(folder.write(), "\"model.norm.weight\" has type I64, expected F32, F16, BF16 or");
}

TEST(HfSource, ReadsFloat64AsFloat32) {
  HfFolder folder;
  folder.weights.remove("model.norm.weight");
  std::vector<double> values(20);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.1 * static_cast<double>(i + 1);
  std::string bytes(160, '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  folder.weights.add_raw("model.norm.weight", "F64", {20}, bytes);
  const std::string model = folder.beside("m.h5");
  convert({.source = folder.write(), .target = model});
  const ModelFile file = ModelFile::open(model);
  const auto& tensors = file.tensors();
  const auto norm = std::find_if(tensors.begin(), tensors.end(), [](const StoredTensor& tensor) {
    return tensor.spec.name == "text.final_norm";
  });
  ASSERT_NE(norm, tensors.end());
  EXPECT_EQ(norm->dtype, DType::kFloat32);
  std::vector<float> got(20);
  std::ifstream in(model, std::ios::binary);
  in.seekg(norm->file_offset);
  in.read(reinterpret_cast<char*>(got.data()), 80);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], static_cast<float>(values[i]));
}

TEST(HfSource, IgnoresTablesThatAreRecomputed) {
  HfFolder folder;
  folder.weights.add_raw("model.layers.0.self_attn.rotary_emb.inv_freq", "I32", {1}, "1234");
  EXPECT_NO_THROW(open_source(folder.write(), {}));
}

TEST(HfSource, TiesEmbeddingsWhereThereIsNoHeadAndIgnoresATiedHead) {
  HfFolder folder;
  folder.config_json["tie_word_embeddings"] = false;
  EXPECT_TRUE(open_source(folder.write(), {}).description.config.tied_embeddings);
  folder.weights.add("lm_head.weight", {1531, 20}, std::vector<float>(1531 * 20));
  EXPECT_FALSE(open_source(folder.write(), {}).description.config.tied_embeddings);
  folder.config_json["tie_word_embeddings"] = true;
  const Source tied = open_source(folder.write(), {});
  EXPECT_TRUE(tied.description.config.tied_embeddings);
  EXPECT_FALSE(tied.tensors.contains("text.head"));
}

struct ShardedSource : testing::Test {
  void SetUp() override {
    folder.write();
    folder.remove("model.safetensors");
    test::SafetensorsBuilder first;
    test::SafetensorsBuilder second;
    int count = 0;
    for (const auto& tensor : test::torch_tensors(test::small_config())) {
      const std::string name = source_tensor_name(tensor.canonical_name, NameStyle::kHuggingFace);
      const bool in_first = count++ % 2 == 0;
      (in_first ? first : second).add(name, tensor.shape, tensor.values);
      weight_map[name] = in_first ? "model-1.safetensors" : "model-2.safetensors";
    }
    folder.write("model-1.safetensors", first.file());
    folder.write("model-2.safetensors", second.file());
  }
  std::string write_index() const {
    folder.write("model.safetensors.index.json", json{{"weight_map", weight_map}}.dump());
    return folder.path();
  }
  HfFolder folder;
  json weight_map;
};

TEST_F(ShardedSource, FindsTensorsInAllFiles) {
  const Source source = open_source(write_index(), {});
  EXPECT_EQ(source.files.size(), 2U);
  EXPECT_EQ(source.tensors.size(), model::tensor_specs(test::small_config()).size());
}

TEST_F(ShardedSource, RefusesMissingFilesAndFalseIndexes) {
  folder.remove("model-2.safetensors");
  expect_refusal(write_index(), "1 of 2 weight files are missing: model-2.safetensors");
  folder.write("model-2.safetensors", kLfsPointer);
  expect_refusal(folder.path(), "model-2.safetensors is a Git LFS pointer");
  weight_map["model.norm.weight"] = "../model-1.safetensors";
  expect_refusal(write_index(), "expected a name in the same folder");
  weight_map["model.norm.weight"] = 1;
  expect_refusal(write_index(), "is not a text");
  folder.write("model.safetensors.index.json", "{}");
  expect_refusal(folder.path(), "\"weight_map\" must name the file");
}

TEST_F(ShardedSource, RefusesTensorsThatAreElsewhereOrTwice) {
  weight_map["model.extra"] = "model-1.safetensors";
  expect_refusal(write_index(), "\"model.extra\" is in model-1.safetensors, but it is not there");
  test::SafetensorsBuilder again;
  again.add("model.embed_tokens.weight", {1}, {1});
  folder.write("model-2.safetensors", again.file());
  expect_refusal(folder.path(), "\"model.embed_tokens.weight\" is both in");
}

TEST(HfSource, RefusesFoldersThatAreSomethingElse) {
  const TemporaryFolder folder;
  expect_refusal(folder.path(), "holds no weights: expected model.safetensors");
  folder.write("adapter_config.json", "{}");
  expect_refusal(folder.path(), "LoRA adapter");
  std::filesystem::remove(folder.file("adapter_config.json"));
  folder.write("m.gguf", "GGUF");
  expect_refusal(folder.path(), "name the file, as " + folder.file("m.gguf"));
  expect_error<MissingInputError>([&] { open_source(folder.file("none"), {}); }, "No such file");
}

TEST(HfSource, RefusesFoldersWithoutUsableWeights) {
  HfFolder folder;
  folder.write();
  folder.remove("model.safetensors");
  expect_refusal(folder.path(), "holds no weights");
  folder.write("model.safetensors.incomplete", "x");
  expect_refusal(folder.path(), "the remains of a download that did not finish");
  folder.write("model-00001-of-00002.safetensors", "x");
  expect_refusal(folder.path(), "1 of 2 weight files are there (model-00001-of-00002.safetensors");
  folder.write("pytorch_model.bin", "x");
  expect_refusal(folder.path(), "is no file that torch.save wrote");
  folder.write("pytorch_model.bin", "\x80\x02 old");
  expect_refusal(folder.path(), "torch.save wrote before PyTorch 1.6");
  folder.remove("pytorch_model.bin");
  folder.remove("model-00001-of-00002.safetensors");
  folder.write("adapter_config.json", "{}");
  folder.write("adapter_model.safetensors", "x");
  expect_refusal(folder.path(), "LoRA adapter");
  folder.write("model.safetensors", kLfsPointer);
  expect_refusal(folder.path(), "model.safetensors is a Git LFS pointer");
  test::SafetensorsBuilder gptq;
  gptq.add_raw("model.layers.0.self_attn.q_proj.qweight", "I32", {1}, "1234");
  folder.write("model.safetensors", gptq.file());
  expect_refusal(folder.path(), "quantized by GPTQ or AWQ");
  test::SafetensorsBuilder adapter;
  adapter.add("base_model.model.layers.0.q_proj.lora_A.weight", {1}, {1});
  folder.write("model.safetensors", adapter.file());
  expect_refusal(folder.path(), "LoRA adapter");
}

TEST(HfSource, RefusesTokenizersThatDoNotFit) {
  HfFolder folder;
  folder.write();
  folder.remove("tokenizer.json");
  expect_refusal(folder.path(), "has no tokenizer");
  folder.write("tokenizer.model", std::string("\x0a\x0e\x0a\x05<unk>", 9));
  expect_refusal(folder.path(), "tokenizer.model: ");
  folder.write("tokenizer.json", "{}");
  expect_refusal(folder.path(), "tokenizer.json: ");
  folder.write("tokenizer.json", kLfsPointer);
  expect_refusal(folder.path(), "Git LFS pointer");
  auto config = test::small_config();
  config.vocab_size = 1530;
  HfFolder fewer(config);
  expect_refusal(fewer.write(), "the tokenizer has 1531 ids and \"");
  HfFolder beyond;
  beyond.config_json["eos_token_id"] = 1531;
  expect_refusal(beyond.write(), "the end-of-text id 1531 is outside the vocabulary of 1531");
}

TEST(HfSource, HandsTheTokenizersSideFilesOn) {
  auto config = test::small_config();
  config.vocab_size = 1540;
  HfFolder folder(config);
  folder.write("added_tokens.json", R"({"<|more|>": 1531})");
  EXPECT_EQ(open_source(folder.write(), {}).description.tokenizer.tokens.size(), 1532U);
  folder.write("special_tokens_map.json", "{");
  expect_refusal(folder.path(), "special_tokens_map.json");
}

TEST(HfSource, TakesTheChatTemplateFromItsSeveralPlaces) {
  HfFolder folder;
  folder.write();
  const std::string llama3 = "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>' }}";
  folder.write("tokenizer_config.json", R"({"chat_template":"{{ 'unheard of' }}"})");
  expect_refusal(folder.path(), "--chat-format none|");
  const SourceOptions forced = {.chat_format = text::ChatFormatKind::kChatMl};
  const Source source = open_source(folder.path(), forced);
  EXPECT_EQ(source.description.chat_format, text::ChatFormatKind::kChatMl);
  EXPECT_EQ(source.description.chat_template, "{{ 'unheard of' }}");
  const SourceOptions llama = {.chat_format = text::ChatFormatKind::kLlama3};
  expect_refusal(folder.path(), "<|", llama);  // the tokenizer lacks its control tokens
  folder.write(
      "tokenizer_config.json",
      R"({"chat_template":[{"name":"tool","template":"t"},{"name":"default","template":"d"}]})");
  EXPECT_EQ(open_source(folder.path(), forced).description.chat_template, "d");
  folder.write("chat_template.json", R"({"chat_template":"from json"})");
  EXPECT_EQ(open_source(folder.path(), forced).description.chat_template, "from json");
  folder.write("chat_template.jinja", "from jinja");
  EXPECT_EQ(open_source(folder.path(), forced).description.chat_template, "from jinja");
  folder.write("chat_template.jinja", "");
  EXPECT_EQ(open_source(folder.path(), {}).description.chat_format, text::ChatFormatKind::kNone);
}

struct GgufSource : testing::Test {
  Source open(const GgufBuilder& builder) const {
    return open_source(folder.write("m.gguf", builder.file()), {});
  }
  void expect_gguf_refusal(const GgufBuilder& builder, const std::string& words) const {
    expect_error<InputError>([&] { open(builder); }, words);
  }
  TemporaryFolder folder;
  model::LlamaConfig config = test::small_gguf_config();
};

TEST_F(GgufSource, ReadsDescriptionAndPlaces) {
  const Source source = open(test::gguf_model(config));
  auto expected = config;
  expected.vocab_size = 260;
  EXPECT_EQ(source.description.config, expected);
  EXPECT_EQ(source.description.name, "Generated");
  EXPECT_EQ(source.head_order, HeadOrder::kInterleaved);
  EXPECT_EQ(source.description.config.norm_epsilon, 1e-5);
  // <|im_end|> by its key, <|eot_id|> by its text.
  EXPECT_EQ(source.description.generation.stop_ids, (std::vector<std::int32_t>{257, 259}));
  EXPECT_EQ(source.tensor("text.layer.0.wo").name, "blk.0.attn_output.weight");
}

TEST_F(GgufSource, ReadsRotaryScaling) {
  GgufBuilder divided = test::gguf_model(config);
  divided.tensor("rope_freqs.weight", {3}, 0, test::bytes_of(std::vector<float>{1, 2, 8}));
  EXPECT_EQ(open(divided).description.config.rope_divisors, (std::vector<float>{1, 2, 8}));
  GgufBuilder linear = test::gguf_model(config);
  linear.text("llama.rope.scaling.type", "linear");
  linear.f32("llama.rope.scaling.factor", 4);
  EXPECT_EQ(open(linear).description.config.rope_scaling.kind, model::RopeScalingKind::kLinear);
  EXPECT_EQ(open(linear).description.config.rope_scaling.factor, 4);
  GgufBuilder yarn = test::gguf_model(config);
  yarn.text("llama.rope.scaling.type", "yarn");
  expect_gguf_refusal(yarn, "llama.rope.scaling.type is \"yarn\"");
  GgufBuilder wrong = test::gguf_model(config);
  wrong.tensor("rope_freqs.weight", {4}, 0, std::string(16, '\0'));
  expect_gguf_refusal(wrong, "rope_freqs.weight has shape [4], expected [3]");
}

TEST_F(GgufSource, TakesTheChatTemplateOrAsksForOne) {
  const std::string key = "tokenizer.chat_template";
  GgufBuilder known = test::gguf_model(config);
  known.text(key,
             "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + "
             "'<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}"
             "{{ '<|im_start|>assistant\n' }}{% endif %}");
  EXPECT_EQ(open(known).description.chat_format, text::ChatFormatKind::kChatMl);
  GgufBuilder other = test::gguf_model(config);
  other.text(key, "{% for m in messages %}{{ m['content'] }}{% endfor %}");
  expect_gguf_refusal(other, "choose one with --chat-format none|");
}

TEST_F(GgufSource, RefusesOtherModels) {
  for (const char* name : {"qwen2", "gemma", "phi3", "llama4", "mistral3"}) {
    GgufBuilder other;
    other.text("general.architecture", name);
    const std::string words = fmt::format("general.architecture is \"{}\", expected", name);
    expect_gguf_refusal(other, words);
    expect_gguf_refusal(other, "Caravan runs Llama models");
  }
  GgufBuilder split = test::gguf_model(config);
  split.u32("split.count", 3);
  expect_gguf_refusal(split, "one part of 3 of a split GGUF");
  GgufBuilder window = test::gguf_model(config);
  window.u32("llama.attention.sliding_window", 50);
  expect_gguf_refusal(window, "a sliding window of 50 positions");
  GgufBuilder experts = test::gguf_model(config);
  experts.u32("llama.expert_count", 8);
  expect_gguf_refusal(experts, "mixture of experts (llama.expert_count 8, as Mixtral is)");
  GgufBuilder adapter = test::gguf_model(config);
  adapter.text("general.type", "adapter");
  expect_gguf_refusal(adapter, "general.type is \"adapter\"");
  GgufBuilder empty;
  empty.text("general.architecture", "llama");
  expect_gguf_refusal(empty, "\"llama.embedding_length\" is missing");
}

/// A model whose tensors are dealt out to three parts; the first holds the metadata.
struct SplitGguf : GgufSource {
  void write() const {
    for (std::uint32_t part = 0; part < 3; ++part) {
      GgufBuilder builder = part == 0 ? test::gguf_metadata(config) : GgufBuilder();
      builder.u32("split.no", part == wrong_number_in ? 7 : part);
      builder.u32("split.count", 3);
      builder.u32("split.tensors.count", tensor_count);
      std::uint32_t index = 0;
      for (const auto& tensor : test::torch_tensors(config_of_file())) {
        const std::uint32_t at = index++ % 3;
        const bool again = repeated && index == 1 && part == 2;
        if (at == part || again) test::add_gguf_tensor(builder, tensor);
      }
      folder.write(name(part), builder.file());
    }
  }
  static std::string name(std::uint32_t part) {
    return "m-0000" + std::to_string(part + 1) + "-of-00003.gguf";
  }
  model::LlamaConfig config_of_file() const {
    model::LlamaConfig result = config;
    result.vocab_size = 260;
    return result;
  }
  std::uint32_t tensor_count = 20;
  std::uint32_t wrong_number_in = 99;
  bool repeated = false;
};

TEST_F(SplitGguf, IsReadFromAnyOfItsParts) {
  write();
  for (const std::uint32_t part : {0U, 2U}) {
    const Source source = open_source(folder.file(name(part)), {});
    EXPECT_EQ(source.files.size(), 3U);
    EXPECT_EQ(source.description.config, config_of_file());
    EXPECT_EQ(source.tensor("text.layer.0.attn_norm").file, 1);
  }
}

TEST_F(SplitGguf, RefusesPartsThatDoNotBelongTogether) {
  wrong_number_in = 1;
  write();
  expect_refusal(folder.file(name(0)), "says that it is part 7 of 3 (from 0), expected 1 of 3");
  wrong_number_in = 99;
  tensor_count = 21;
  write();
  expect_refusal(folder.file(name(0)), "hold 20 tensors, expected 21");
  repeated = true;
  write();
  expect_refusal(folder.file(name(0)), "is in an earlier part, too");
  std::filesystem::remove(folder.file(name(2)));
  expect_refusal(folder.file(name(0)), "1 of 3 parts of a split GGUF are missing");
}

TEST_F(GgufSource, RefusesTensorsThatDoNotMatch) {
  GgufBuilder extra = test::gguf_model(config);
  extra.tensor("blk.0.ffn_gate_inp.weight", {1}, 0, "1234");
  expect_gguf_refusal(extra, "blk.0.ffn_gate_inp.weight is in the source, but");
  GgufBuilder bias = test::gguf_model(config);
  bias.tensor("blk.0.attn_q.bias", {18}, 0, std::string(72, '\0'));
  expect_gguf_refusal(bias, "blk.0.attn_k.bias is missing");
}

// What stands for a file that was not fetched, wherever the file is needed.
TEST(OpenSource, RefusesFilesThatWereNotFetched) {
  const std::vector<std::pair<std::string, std::string>> stand_ins = {
      {kLfsPointer, "Git LFS pointer"},
      {"<!doctype html>", "web page"},
      {"", "is empty"},
      {"Salted__12345678", "is encrypted (by openssl enc)"},
      {"age-encryption.org/v1\n", "is encrypted (by age)"},
      {"-----BEGIN AGE ENCRYPTED FILE-----\n", "is encrypted (by age)"},
      {"-----BEGIN PGP MESSAGE-----\n", "is encrypted (by GnuPG)"}};
  for (const char* name :
       {"config.json", "tokenizer.json", "model.safetensors", "tokenizer_config.json"}) {
    for (const auto& [content, words] : stand_ins) {
      SCOPED_TRACE(std::string(name) + ", " + words);
      HfFolder folder;
      folder.write();
      folder.write(name, content);
      expect_refusal(folder.path(), words);
      expect_refusal(folder.path(), name);
    }
  }
}

// Hugging Face's cache: a snapshot folder of links to blobs.
TEST(OpenSource, FollowsTheLinksOfACache) {
  HfFolder folder;
  folder.write();
  const std::string snapshot = folder.beside("snap shot-\xC3\xA9");
  std::filesystem::create_directory(snapshot);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    std::filesystem::create_symlink(std::filesystem::absolute(entry.path()),
                                    snapshot + "/" + entry.path().filename().string());
  }
  const Source source = open_source(snapshot, {});
  EXPECT_EQ(source.description.config, test::small_config());
  EXPECT_EQ(source.description.name, "snap shot-\xC3\xA9");
}

TEST(OpenSource, RefusesOtherFilesByContent) {
  const TemporaryFolder folder;
  expect_refusal(folder.write("a", "hello"), "is of no known format");
  expect_refusal(folder.write("a", ""), "a is empty: the download failed");
  expect_refusal(folder.write("a", "\n<!DOCTYPE html>\n<html>"), "is a web page (HTML)");
  expect_refusal(folder.write("a", "<HTML><head>"), "is a web page (HTML)");
  expect_refusal(folder.write("a", std::string("PK\x03\x04") + "zip"),
                 "is no complete zip archive");
  expect_refusal(folder.write("a", kLfsPointer), "Git LFS pointer");
  expect_refusal(folder.write("a.safetensors", "x"), "is not a safetensors file");
  expect_refusal(folder.write("a", "\x89HDF\r\n\x1a\n and more"), "is an HDF5 file, expected");
}

}  // namespace
}  // namespace caravan::checkpoint
