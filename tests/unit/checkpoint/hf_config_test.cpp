#include "caravan/checkpoint/hf_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "caravan/core/error.h"
#include "support/expect_error.h"

namespace caravan::checkpoint {
namespace {

using nlohmann::json;
using test::expect_error;

json base() {
  return {{"model_type", "llama"},
          {"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", 1000},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 8},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 512},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 500000.0},
          {"eos_token_id", 7}};
}

HfConfig parse(const json& value) { return parse_hf_config(value.dump(), "config.json"); }

json with(const char* name, const json& value) {
  json changed = base();
  changed[name] = value;
  return changed;
}

void expect_refusal(const json& value, const std::string& words) {
  expect_error<InputError>([&] { parse(value); }, words);
}

TEST(HfConfig, ReadsSizesAndDefaults) {
  const HfConfig parsed = parse(base());
  const model::LlamaConfig& config = parsed.config;
  EXPECT_EQ(config.vocab_size, 1000);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.ffn_size, 96);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.num_heads, 8);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.norm_epsilon, 1e-5);
  EXPECT_EQ(config.rope_theta, 500000);
  EXPECT_FALSE(config.tied_embeddings || config.attention_bias || config.mlp_bias);
  EXPECT_EQ(parsed.stop_ids, std::vector<std::int32_t>{7});
  json sparse = base();
  for (const char* name : {"num_key_value_heads", "rope_theta", "rms_norm_eps", "eos_token_id"})
    sparse.erase(name);
  const HfConfig old = parse(sparse);
  EXPECT_EQ(old.config.num_kv_heads, 8);
  EXPECT_EQ(old.config.rope_theta, 10000);
  EXPECT_EQ(old.config.norm_epsilon, 1e-6);
  EXPECT_TRUE(old.stop_ids.empty());
}

TEST(HfConfig, ReadsDialects) {
  EXPECT_EQ(parse(with("head_dim", nullptr)).config.head_dim, 8);
  EXPECT_EQ(parse(with("head_dim", 24)).config.head_dim, 24);
  EXPECT_EQ(parse(with("eos_token_id", {1, 2})).stop_ids, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(parse(with("rope_scaling", nullptr)).config.rope_scaling.kind,
            model::RopeScalingKind::kNone);
  const json llama3 = {{"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 64}};
  json with_type = llama3;
  with_type["type"] = "llama3";
  json with_rope_type = llama3;
  with_rope_type["rope_type"] = "llama3";
  const auto old_style = parse(with("rope_scaling", with_type)).config;
  EXPECT_EQ(old_style.rope_scaling.kind, model::RopeScalingKind::kLlama3);
  EXPECT_EQ(old_style.rope_scaling.factor, 8);
  EXPECT_EQ(old_style.rope_scaling.original_max_positions, 64);
  EXPECT_EQ(parse(with("rope_scaling", with_rope_type)).config, old_style);
  json parameters = with_rope_type;
  parameters["rope_theta"] = 500000.0;
  json new_style = with("rope_parameters", parameters);
  new_style.erase("rope_theta");
  EXPECT_EQ(parse(new_style).config, old_style);
  const auto linear = parse(with("rope_scaling", {{"type", "linear"}, {"factor", 2.0}})).config;
  EXPECT_EQ(linear.rope_scaling.kind, model::RopeScalingKind::kLinear);
  EXPECT_EQ(linear.rope_scaling.factor, 2);
}

// What the configurations of releases have beyond the common fields.
TEST(HfConfig, ReadsThePeculiaritiesOfReleases) {
  json code_llama = with("rope_theta", 1e6);
  code_llama["vocab_size"] = 32016;  // four tokens to fill in the middle, and padding
  code_llama["max_position_embeddings"] = 16384;
  code_llama["pretraining_tp"] = 1;
  EXPECT_EQ(parse(code_llama).config.rope_theta, 1e6);
  EXPECT_EQ(parse(code_llama).config.vocab_size, 32016);

  json llama2_70b = with("pretraining_tp", 8);  // of the training; changes nothing
  llama2_70b["hidden_size"] = 8192;
  llama2_70b["intermediate_size"] = 28672;
  llama2_70b["num_attention_heads"] = 64;
  llama2_70b["num_key_value_heads"] = 8;
  llama2_70b["num_hidden_layers"] = 80;
  llama2_70b["rope_scaling"] = nullptr;
  llama2_70b.erase("head_dim");
  EXPECT_EQ(parse(llama2_70b).config.num_kv_heads, 8);
  EXPECT_EQ(parse(llama2_70b).config.head_dim, 128);

  json tiny_llama = with("num_key_value_heads", 4);
  tiny_llama["hidden_size"] = 2048;
  tiny_llama["intermediate_size"] = 5632;
  tiny_llama["num_attention_heads"] = 32;
  tiny_llama["num_hidden_layers"] = 22;
  tiny_llama["attention_bias"] = false;
  tiny_llama.erase("head_dim");
  EXPECT_EQ(parse(tiny_llama).config.head_dim, 64);
  EXPECT_FALSE(parse(tiny_llama).config.attention_bias);
}

TEST(HfConfig, RefusesOtherModelsByName) {
  for (const char* type :
       {"qwen2", "qwen2_vl", "gemma2", "mixtral", "llama4", "phi3", "gpt_neox"}) {
    expect_refusal(with("model_type", type),
                   fmt::format("model_type is \"{}\", expected \"llama\"", type));
    expect_refusal(with("model_type", type), "Caravan runs Llama models");
  }
  expect_refusal(with("architectures", {"LlamaForSequenceClassification"}),
                 "\"LlamaForSequenceClassification\", expected \"LlamaForCausalLM\"");
  expect_refusal(with("quantization_config", {{"quant_method", "gptq"}}), "is quantized (gptq)");
  expect_refusal(with("quantization_config", {{"bits", 4}}), "is quantized (unknown method)");
  expect_refusal(with("hidden_act", "gelu"), "hidden_act is \"gelu\"");
  expect_refusal(with("partial_rotary_factor", 0.5), "partial_rotary_factor is 0.5");
  expect_refusal(with("rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}), "\"yarn\"");
}

TEST(HfConfig, ReadsMistralWithoutSlidingWindow) {
  json mistral = with("model_type", "mistral");
  mistral["architectures"] = {"MistralForCausalLM"};
  mistral["max_position_embeddings"] = 32768;
  expect_refusal(mistral, "a sliding window of 4096 positions");  // the default of its class
  mistral["sliding_window"] = 4096;
  expect_refusal(mistral, "a sliding window of 4096 positions");
  mistral["sliding_window"] = nullptr;
  EXPECT_EQ(parse(mistral).config.max_positions, 32768);
  mistral["sliding_window"] = 32768;
  EXPECT_NO_THROW(parse(mistral));
  mistral.erase("num_key_value_heads");
  EXPECT_EQ(parse(mistral).config.num_kv_heads, 8);
  mistral["architectures"] = {"LlamaForCausalLM"};
  expect_refusal(mistral, "expected \"MistralForCausalLM\"");
}

TEST(HfConfig, RefusesFaultyFields) {
  expect_error<InputError>([] { parse_hf_config("{\"a\": ", "config.json"); },
                           "config.json: not valid JSON");
  expect_error<InputError>([] { parse_hf_config("[1]", "config.json"); },
                           "must be a JSON object, found an array");
  expect_refusal(with("hidden_size", "64"), "\"hidden_size\" must be an integer");
  expect_refusal(with("hidden_size", 64.5), "\"hidden_size\" must be an integer");
  expect_refusal(with("rms_norm_eps", "x"), "\"rms_norm_eps\" must be a number");
  expect_refusal(with("tie_word_embeddings", 1), "\"tie_word_embeddings\" must be true or false");
  expect_refusal(with("eos_token_id", -1), "must be a token id");
  expect_refusal(with("architectures", std::vector<std::string>(1, std::string(1000, 'x'))),
                 "the architecture is \"" + std::string(119, 'x') + "..., expected");
  expect_refusal(with("eos_token_id", {{"a", 1}}), "must be a token id");
  expect_refusal(with("num_attention_heads", 0), "num_attention_heads is 0");
  expect_refusal(with("num_attention_heads", 7), "must be a multiple of num_attention_heads (7)");
  expect_refusal(with("num_key_value_heads", 3), "num_kv_heads (3)");
  expect_refusal(with("hidden_size", std::int64_t{1} << 40), "hidden_size");
  expect_refusal(with("rope_scaling", {{"rope_type", "llama3"}}), "\"low_freq_factor\" is missing");
  json like_llama3 = with("vocab_size", 128256);
  like_llama3.erase("rope_theta");
  expect_refusal(like_llama3, "rope_theta is missing");
}

TEST(GenerationConfig, ReadsDefaultsAndStopIds) {
  const auto defaults = parse_generation_config(
      R"({"temperature":0.6,"top_p":0.9,"top_k":40,"repetition_penalty":1.1,"eos_token_id":[3,4]})",
      "g");
  EXPECT_EQ(defaults.temperature, 0.6);
  EXPECT_EQ(defaults.top_p, 0.9);
  EXPECT_EQ(defaults.top_k, 40);
  EXPECT_EQ(defaults.repetition_penalty, 1.1);
  EXPECT_EQ(defaults.stop_ids, (std::vector<std::int32_t>{3, 4}));
  EXPECT_EQ(parse_generation_config("{}", "g"), GenerationDefaults());
  for (const char* text : {R"({"temperature":-1})", R"({"top_p":0})", R"({"top_p":1.5})",
                           R"({"top_k":-1})", R"({"repetition_penalty":0})"}) {
    expect_error<InputError>([&] { parse_generation_config(text, "g"); }, "must be");
  }
}

}  // namespace
}  // namespace caravan::checkpoint
