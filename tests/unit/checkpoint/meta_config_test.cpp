#include "caravan/checkpoint/meta_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "caravan/core/error.h"
#include "support/expect_error.h"

namespace caravan::checkpoint {
namespace {

using Json = nlohmann::json;
using test::expect_error;
using text::TokenizerKind;

MetaParams parse(const Json& json) { return parse_meta_params(json.dump(), "params.json"); }

void expect_refusal(const Json& json, const std::string& words) {
  expect_error<InputError>([&] { parse(json); }, words);
}

const Json kLlama2 = {{"dim", 4096},    {"multiple_of", 256}, {"n_heads", 32},
                      {"n_layers", 32}, {"norm_eps", 1e-5},   {"vocab_size", -1}};
const Json kLlama31 = {{"dim", 4096},
                       {"n_layers", 32},
                       {"n_heads", 32},
                       {"n_kv_heads", 8},
                       {"vocab_size", 128256},
                       {"ffn_dim_multiplier", 1.3},
                       {"multiple_of", 1024},
                       {"norm_eps", 1e-5},
                       {"rope_theta", 500000.0},
                       {"use_scaled_rope", true}};

TEST(MetaParams, FillsWhatLlama2LeavesOut) {
  MetaParams params = parse(kLlama2);
  EXPECT_FALSE(params.has_vocab_size);
  complete_meta_config(params, TokenizerKind::kSentencePiece);
  EXPECT_EQ(params.config.rope_theta, 10000);
  EXPECT_EQ(params.config.num_kv_heads, 32);
  EXPECT_EQ(params.config.ffn_size, 11008);
  EXPECT_EQ(params.config.max_positions, 4096);
  EXPECT_EQ(params.config.rope_scaling.kind, model::RopeScalingKind::kNone);
}

TEST(MetaParams, ReadsLlama31AndItsWrapping) {
  for (const Json& json : {kLlama31, Json{{"model", kLlama31}}}) {
    MetaParams params = parse(json);
    complete_meta_config(params, TokenizerKind::kTiktoken);
    EXPECT_TRUE(params.has_vocab_size);
    EXPECT_EQ(params.config.vocab_size, 128256);
    EXPECT_EQ(params.config.head_dim, 128);
    EXPECT_EQ(params.config.ffn_size, 14336);
    EXPECT_EQ(params.config.max_positions, 131072);
    EXPECT_EQ(params.config.rope_scaling.kind, model::RopeScalingKind::kLlama3);
    EXPECT_EQ(params.config.rope_scaling.factor, 8);
    EXPECT_EQ(params.config.rope_scaling.original_max_positions, 8192);
    EXPECT_FALSE(params.is_tied_release);
  }
}

struct Release {
  std::int64_t dim, layers, multiple_of;
  double multiplier;
  std::int64_t ffn_size;
  double factor;
};

TEST(MetaParams, GivesTheSizesOfTheReleases) {
  for (const Release& release :
       {Release{8192, 80, 4096, 1.3, 28672, 8}, Release{16384, 126, 4096, 1.2, 53248, 8},
        Release{2048, 16, 256, 1.5, 8192, 32}, Release{3072, 28, 256, 1.0, 8192, 32},
        Release{5120, 40, 256, 1.0, 13824, 8}}) {
    Json json = kLlama31;
    json["dim"] = release.dim;
    json["n_layers"] = release.layers;
    json["multiple_of"] = release.multiple_of;
    json["ffn_dim_multiplier"] = release.multiplier;
    const MetaParams params = parse(json);
    EXPECT_EQ(params.config.ffn_size, release.ffn_size) << release.dim;
    EXPECT_EQ(params.config.rope_scaling.factor, release.factor) << release.dim;
    EXPECT_EQ(params.is_tied_release, release.factor == 32) << release.dim;
  }
}

TEST(MetaParams, KnowsTheContextOfEachGeneration) {
  const auto positions = [](Json json, const char* key, const Json& value, TokenizerKind kind) {
    json[key] = value;
    MetaParams params = parse(json);
    complete_meta_config(params, kind);
    return params.config.max_positions;
  };
  EXPECT_EQ(positions(kLlama2, "norm_eps", 1e-6, TokenizerKind::kSentencePiece), 2048);
  EXPECT_EQ(positions(kLlama2, "rope_theta", 1e6, TokenizerKind::kSentencePiece), 16384);
  Json mistral = kLlama2;
  mistral["hidden_dim"] = 14336;
  EXPECT_EQ(positions(mistral, "rope_theta", 1e6, TokenizerKind::kSentencePiece), 32768);
  EXPECT_EQ(positions(kLlama31, "use_scaled_rope", false, TokenizerKind::kTiktoken), 8192);
  Json without_theta = kLlama31;
  without_theta.erase("rope_theta");
  MetaParams params = parse(without_theta);
  complete_meta_config(params, TokenizerKind::kTiktoken);
  EXPECT_EQ(params.config.rope_theta, 500000);
}

TEST(MetaParams, RefusesOtherModelsByName) {
  const auto with = [](const char* key, const Json& value) {
    Json json = kLlama31;
    json[key] = value;
    return json;
  };
  expect_refusal(with("moe", Json{{"num_experts", 8}}), "a mixture of experts");
  expect_refusal(with("sliding_window", 4096), "a sliding window");
  expect_refusal(with("quantization_args", Json::object()), "a quantized variant");
  expect_refusal(with("lora_args", Json::object()), "LoRA weights");
  EXPECT_NO_THROW(parse(with("vision_chunk_size", -1)));
}

TEST(MetaParams, RefusesSizesThatMakeNoSense) {
  const auto with = [](const char* key, const Json& value) {
    Json json = kLlama2;
    json[key] = value;
    return json;
  };
  expect_refusal(with("dim", nullptr), "\"dim\" is missing");
  expect_refusal(with("dim", 0), "\"dim\" is 0");
  expect_refusal(with("dim", std::int64_t{1} << 62), "expected 1 to");
  expect_refusal(with("dim", "4096"), "must be an integer");
  expect_refusal(with("dim", 4095), "dim (4095) must be a multiple of n_heads (32)");
  expect_refusal(with("n_kv_heads", 5), "num_heads (32) must be a multiple of num_kv_heads (5)");
  expect_refusal(with("multiple_of", 0), "\"multiple_of\" is 0");
  expect_refusal(with("ffn_dim_multiplier", 1e300), "ffn_dim_multiplier");
  expect_error<InputError>([] { parse_meta_params("{", "p"); }, "not valid JSON at column 1");
}

}  // namespace
}  // namespace caravan::checkpoint
