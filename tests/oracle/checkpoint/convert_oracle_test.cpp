// Converts every small checkpoint and compares all stored tensors with hashes that were computed
// without this program (tests/data/make_expected_weights.py), and the description with the sizes
// and stop ids of tests/data/expected.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "caravan/checkpoint/convert.h"
#include "caravan/checkpoint/model_file.h"
#include "expected_tensors.h"
#include "support/temporary_folder.h"

namespace caravan::checkpoint {
namespace {

using Json = nlohmann::json;

const std::string kData = CARAVAN_TEST_DATA;

Json read_json(const std::string& name) {
  std::ifstream in(kData + "/expected/" + name);
  EXPECT_TRUE(in) << name;
  return Json::parse(in);
}

struct ConvertOracle : testing::TestWithParam<std::string> {
  ModelFile convert_it() const {
    ConvertOptions options;
    options.source = kData + "/checkpoints/" + GetParam();
    // A folder with two models; epoch_0 is the other one.
    if (GetParam() == "tiny-llama31-tune") options.source += "/model.safetensors";
    options.target = folder.file("model.h5");
    convert(options);
    return ModelFile::open(options.target);
  }
  test::TemporaryFolder folder;
};

TEST_P(ConvertOracle, WritesTheExpectedBytesOfEveryTensor) {
  ModelFile file = convert_it();
  const Json expected = read_json("weights.json").at(GetParam());
  expect_stored_tensors(file, expected);
}

// "folder/folder-Q4_1.gguf" has its expected outputs in "folder-Q4_1.json". torchtune's folder has
// the float32 weights in an epoch and their bf16 form outside.
std::string expected_name(const std::string& checkpoint) {
  const std::size_t slash = checkpoint.find('/');
  if (checkpoint.ends_with("-tune")) return checkpoint + "-bf16.json";
  if (slash == std::string::npos) return checkpoint + ".json";
  if (checkpoint.ends_with("/epoch_0")) return checkpoint.substr(0, slash) + ".json";
  return checkpoint.substr(slash + 1, checkpoint.rfind('.') - slash - 1) + ".json";
}

TEST_P(ConvertOracle, DescribesTheModel) {
  const ModelFile file = convert_it();
  const Json expected = read_json(expected_name(GetParam()));
  const Json& sizes = expected.at("architecture");
  const model::LlamaConfig& config = file.description().config;
  EXPECT_EQ(config.vocab_size, sizes.at("vocab_size"));
  EXPECT_EQ(config.hidden_size, sizes.at("hidden_size"));
  EXPECT_EQ(config.ffn_size, sizes.at("intermediate_size"));
  EXPECT_EQ(config.num_layers, sizes.at("num_hidden_layers"));
  EXPECT_EQ(config.num_heads, sizes.at("num_attention_heads"));
  EXPECT_EQ(config.num_kv_heads, sizes.at("num_key_value_heads"));
  EXPECT_EQ(config.head_dim, sizes.at("head_dim"));
  // Meta's params.json has no context length: it is that of the release.
  if (GetParam().find("-meta") == std::string::npos) {
    EXPECT_EQ(config.max_positions, sizes.at("max_position_embeddings"));
  }
  EXPECT_EQ(config.rope_theta, sizes.at("rope_theta"));
  EXPECT_EQ(config.norm_epsilon, sizes.at("rms_norm_eps"));
  EXPECT_EQ(config.tied_embeddings, sizes.at("tie_word_embeddings"));
  if (!expected.at("stop_ids").empty()) {
    EXPECT_EQ(Json(file.description().generation.stop_ids), expected.at("stop_ids"));
  }
  const bool scaled =
      config.rope_scaling.kind == model::RopeScalingKind::kLlama3 || !config.rope_divisors.empty();
  EXPECT_EQ(scaled, sizes.contains("rope_scaling"));
}

// The divisors of GGUF and the factors of config.json mean the same frequencies.
TEST(ConvertOracleRope, DivisorsOfGgufEqualTheScalingOfHuggingFace) {
  const test::TemporaryFolder folder;
  const auto frequencies = [&](const std::string& checkpoint) {
    ConvertOptions options;
    options.source = kData + "/checkpoints/" + checkpoint;
    options.target = folder.file("rope.h5");
    options.overwrite = true;
    convert(options);
    return model::rope_inverse_frequencies(ModelFile::open(options.target).description().config);
  };
  for (const std::string model : {"tiny-llama31", "tiny-llama32"}) {
    const auto from_hf = frequencies(model);
    const auto from_gguf = frequencies(model + "-gguf/" + model + "-gguf-F16.gguf");
    ASSERT_EQ(from_hf.size(), from_gguf.size());
    for (std::size_t i = 0; i < from_hf.size(); ++i)
      EXPECT_NEAR(from_gguf[i] / from_hf[i], 1.0, 1e-6) << model << " pair " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ConvertOracle,
    testing::Values("tiny-llama3", "tiny-llama31", "tiny-llama31-bf16", "tiny-llama32",
                    "tiny-uneven", "tiny-llama31-gguf/tiny-llama31-gguf-F32.gguf",
                    "tiny-llama31-gguf/tiny-llama31-gguf-F16.gguf",
                    "tiny-llama31-gguf/tiny-llama31-gguf-Q8_0.gguf",
                    "tiny-llama31-gguf/tiny-llama31-gguf-Q4_0.gguf",
                    "tiny-llama31-gguf/tiny-llama31-gguf-Q4_1.gguf",
                    "tiny-llama31-gguf/tiny-llama31-gguf-Q5_1.gguf",
                    "tiny-llama32-gguf/tiny-llama32-gguf-F16.gguf", "tiny-llama2",
                    "tiny-llama2-gguf/tiny-llama2-gguf-F16.gguf", "tiny-llama2-meta",
                    "tiny-llama31-meta", "tiny-llama31-meta-bf16", "tiny-llama31-tune",
                    "tiny-llama31-tune/epoch_0", "tiny-k256-gguf/tiny-k256-gguf-Q4_K.gguf",
                    "tiny-k256-gguf/tiny-k256-gguf-Q6_K.gguf",
                    "tiny-k256-gguf/tiny-k256-gguf-Q4_K_M.gguf",
                    "tiny-k256-gguf/tiny-k256-gguf-Q5_K.gguf"));

}  // namespace
}  // namespace caravan::checkpoint
