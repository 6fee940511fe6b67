#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "caravan/core/error.h"
#include "caravan/model/config.h"
#include "support/tiny_model.h"

namespace caravan::model {
namespace {

bool mentions(const std::vector<std::string>& problems, const std::string& text) {
  return std::any_of(problems.begin(), problems.end(),
                     [&](const std::string& p) { return p.find(text) != std::string::npos; });
}

TEST(LlamaConfig, RoundTripsThroughJson) {
  LlamaConfig config = test::uneven_config();
  config.norm_epsilon = 9.999999747378752e-06;
  config.rope_theta = 500000;
  config.rope_scaling = {RopeScalingKind::kLlama3, 32, 1, 4, 8192};
  config.rope_divisors = {1.0F, 1.5F, 2.0F, 32.0F};
  config.attention_bias = true;
  EXPECT_EQ(llama_config_from_json(to_json(config)), config);
}

TEST(LlamaConfig, VisionRoundTripsThroughJson) {
  const LlamaConfig config = test::uneven_vision_config();
  EXPECT_TRUE(config.problems().empty());
  EXPECT_EQ(llama_config_from_json(to_json(config)), config);
  EXPECT_NE(to_json(config).find("mllama"), std::string::npos);
  EXPECT_EQ(to_json(test::uneven_config()).find("vision"), std::string::npos);
}

TEST(LlamaConfig, ReportsProblemsOfTheVisionPart) {
  LlamaConfig config = test::uneven_vision_config();
  config.vision->patch_size = 5;
  config.vision->num_heads = 7;
  config.vision->saved_layers = {1, 1};
  config.vision->cross_layers = {0, 3};
  config.vision->image_token_id = 5;
  const auto problems = config.problems();
  for (const char* part : {"tile_size (28) must be a multiple of vision.patch_size (5)",
                           "width (60) must be a multiple of vision.num_heads (7)", "saved_layers",
                           "cross_layers", "image_token_id"}) {
    EXPECT_TRUE(mentions(problems, part)) << part;
  }
  config.vision->width = 0;
  EXPECT_TRUE(mentions(config.problems(), "vision.width must be 1 to"));
}

TEST(LlamaConfig, JsonFaultsNameTheField) {
  const std::string good = to_json(test::uneven_config());
  const auto fault = [](const std::string& text) -> std::string {
    try {
      llama_config_from_json(text);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  const auto replaced = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  EXPECT_NE(fault("{").find("not valid JSON"), std::string::npos);
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  for (const char* name :
       {"num_layers", "norm_epsilon", "attention_bias", "architecture", "kind"}) {
    const std::string field = fmt::format("\"{}\": ", name);
    const std::string message = fault(replaced(field, field + deep + ", \"rest\": "));
    EXPECT_NE(message.find("nested more than 100 deep"), std::string::npos) << name;
  }
  EXPECT_NE(fault(replaced("{", "{\"num_layers\": 1,")).find("\"num_layers\" is there twice"),
            std::string::npos);
  EXPECT_NE(fault("[]").find("must be a JSON object"), std::string::npos);
  EXPECT_NE(fault(replaced("\"num_heads\"", "\"num_hats\"")).find("num_heads"), std::string::npos);
  EXPECT_NE(fault(replaced("\"hidden_size\": 72", "\"hidden_size\": 7.5")).find("hidden_size"),
            std::string::npos);
  EXPECT_NE(fault(replaced("\"llama\"", "\"gemma\"")).find("gemma"), std::string::npos);
  EXPECT_NE(fault(replaced("\"none\"", "\"yarn\"")).find("yarn"), std::string::npos);
  EXPECT_NE(fault(replaced("{", "{\"surplus\": 1,")).find("surplus"), std::string::npos);
}

TEST(LlamaConfig, ReportsAllProblemsTogether) {
  LlamaConfig config = test::uneven_config();
  EXPECT_TRUE(config.problems().empty());
  config.num_kv_heads = 2;
  config.head_dim = 7;
  config.norm_epsilon = 0;
  config.vocab_size = std::int64_t{1} << 40;
  const auto problems = config.problems();
  EXPECT_TRUE(mentions(problems, "num_heads (9) must be a multiple of num_kv_heads (2)"));
  EXPECT_TRUE(mentions(problems, "head_dim must be even"));
  EXPECT_TRUE(mentions(problems, "norm_epsilon"));
  EXPECT_TRUE(mentions(problems, "vocab_size"));
}

// Frequencies of the released models: kept, smooth and fully scaled pairs (Llama 3 base 5e5).
TEST(RopeInverseFrequencies, MatchTheReleasedModels) {
  LlamaConfig config = test::uneven_config();
  config.rope_theta = 500000;
  config.rope_scaling = {RopeScalingKind::kLlama3, 8, 1, 4, 8192};
  config.head_dim = 128;
  auto frequencies = rope_inverse_frequencies(config);
  EXPECT_EQ(frequencies[0], 1.0F);
  EXPECT_NEAR(frequencies[29], 2.1665708e-3, 2e-9);
  EXPECT_NEAR(frequencies[34], 1.7850781e-4, 2e-10);
  EXPECT_NEAR(frequencies[35], 9.5562124e-5, 1e-10);
  EXPECT_NEAR(frequencies[63], 3.0689260e-7, 1e-12);

  config.rope_scaling.factor = 32;
  config.head_dim = 64;
  frequencies = rope_inverse_frequencies(config);
  EXPECT_NEAR(frequencies[15], 1.2905479e-3, 2e-9);
  EXPECT_NEAR(frequencies[17], 9.7082878e-5, 1e-10);
  EXPECT_NEAR(frequencies[31], 9.4183067e-8, 1e-13);
}

TEST(RopeInverseFrequencies, AppliesDivisorsAndLinearScaling) {
  LlamaConfig config = test::uneven_config();
  config.rope_theta = 10000;
  config.head_dim = 4;
  const auto plain = rope_inverse_frequencies(config);
  config.rope_divisors = {1.0F, 4.0F};
  EXPECT_EQ(rope_inverse_frequencies(config)[1], plain[1] / 4);
  config.rope_divisors.clear();
  config.rope_scaling = {RopeScalingKind::kLinear, 2, 1, 4, 8192};
  EXPECT_EQ(rope_inverse_frequencies(config)[0], plain[0] / 2);
}

}  // namespace
}  // namespace caravan::model
