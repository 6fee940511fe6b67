// Descriptions of Llama 3.2 Vision models: Hugging Face, Meta, and torchtune's builders.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "caravan/checkpoint/architecture.h"
#include "caravan/checkpoint/hf_config.h"
#include "caravan/checkpoint/meta_config.h"
#include "caravan/checkpoint/tune_config.h"
#include "caravan/core/error.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace caravan::checkpoint {
namespace {

using Json = nlohmann::json;
using test::expect_error;
using Layers = std::vector<std::int64_t>;

const std::string kCheckpoints = std::string(CARAVAN_TEST_DATA) + "/checkpoints/";
const std::string kArchitectures = std::string(CARAVAN_TEST_DATA) + "/architectures/";

Json read_json(const std::string& path) { return Json::parse(test::read_whole(path)); }
Json hf() { return read_json(kCheckpoints + "tiny-vision/config.json"); }
Json params() { return read_json(kCheckpoints + "tiny-vision-meta/params.json"); }
Json builders() { return read_json(kCheckpoints + "tiny-vision-tune/builder_args.json"); }

model::LlamaConfig parse(const Json& json) { return parse_hf_config(json.dump(), "c").config; }

void expect_refusal(const Json& json, const std::string& words) {
  expect_error<InputError>([&] { parse(json); }, words);
}

Json with(const char* part, const char* name, const Json& value) {
  Json json = hf();
  json[part][name] = value;
  return json;
}

void expect_tiny(const model::LlamaConfig& config) {
  EXPECT_EQ(config.vocab_size, 768);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.ffn_size, 176);
  EXPECT_EQ(config.num_layers, 4);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.rope_scaling.factor, 8);
  EXPECT_EQ(config.norm_epsilon, 1e-5);
  ASSERT_TRUE(config.vision.has_value());
  model::VisionConfig expected;
  expected.tile_size = 56;
  expected.patch_size = 14;
  expected.width = 80;
  expected.num_heads = 4;
  expected.ffn_size = 320;
  expected.num_local_layers = 3;
  expected.num_global_layers = 2;
  expected.saved_layers = {1, 2};
  expected.cross_layers = {1, 3};
  expected.image_token_id = 768;
  EXPECT_EQ(*config.vision, expected);
}

TEST(VisionDescription, IsTheSameInAllForms) {
  const HfConfig parsed = parse_hf_config(hf().dump(), "config.json");
  expect_tiny(parsed.config);
  EXPECT_EQ(parsed.stop_ids, (std::vector<std::int32_t>{513, 520, 521}));
  expect_tiny(parse_meta_params(params().dump(), "params.json").config);
  expect_tiny(parse_builder_args(builders().dump(), "builder_args.json"));
}

// transformers 5: rope_parameters, dtype, image_token_id.
TEST(VisionDescription, ReadsTheNewerDialect) {
  Json json = hf();
  json["image_token_id"] = json["image_token_index"];
  json.erase("image_token_index");
  Json& text = json["text_config"];
  text["rope_parameters"] = text["rope_scaling"];
  text["rope_parameters"]["rope_theta"] = text["rope_theta"];
  text.erase("rope_scaling");
  text.erase("rope_theta");
  Json& vision = json["vision_config"];
  vision["num_attention_heads"] = vision["attention_heads"];
  vision.erase("attention_heads");
  EXPECT_EQ(parse(json), parse(hf()));
}

TEST(VisionDescription, FillsInTheDefaultsOfTheClasses) {
  const Json json = {{"model_type", "mllama"},
                     {"text_config", {{"rope_theta", 500000.0}}},
                     {"vision_config", Json::object()}};
  const model::LlamaConfig config = parse(json);
  EXPECT_EQ(config.num_layers, 32);
  EXPECT_EQ(config.vision->cross_layers, (Layers{3, 7, 11, 15, 19, 23, 27, 31}));
  EXPECT_EQ(config.vision->tile_size, 448);
  EXPECT_EQ(config.vision->feature_size(), 7680);
  EXPECT_EQ(config.norm_epsilon, 1e-5);
  Json without_theta = json;
  without_theta["text_config"] = Json::object();
  expect_refusal(without_theta, "rope_theta is missing");
}

// Published counts, less the cells of tile tables that no arrangement uses.
TEST(VisionDescription, GivesTheReleasesTheirParameters) {
  constexpr std::int64_t kUnusedCells = 28 * (1601 + 2) * 1280;
  const std::pair<const char*, std::int64_t> releases[] = {{"llama-3.2-11b-vision", 10670220835},
                                                           {"llama-3.2-90b-vision", 88593355323}};
  for (const auto& [name, count] : releases) {
    const Architecture hugging_face = read_architecture(kArchitectures + name + ".json");
    EXPECT_EQ(num_parameters(hugging_face.config), count - kUnusedCells) << name;
    EXPECT_EQ(hugging_face.dtype, DType::kBFloat16);
    const Architecture meta = read_architecture(kArchitectures + name + ".params.json");
    EXPECT_EQ(meta.config, hugging_face.config) << name;
  }
}

TEST(VisionDescription, RefusesWhatTheEncoderDoesNotDo) {
  expect_refusal(with("vision_config", "max_num_tiles", 6), "\"max_num_tiles\" is 6, expected 4");
  expect_refusal(with("vision_config", "num_channels", 1), "\"num_channels\" is 1");
  expect_refusal(with("vision_config", "hidden_act", "quick_gelu"), "\"hidden_act\" is quick_gelu");
  expect_refusal(with("vision_config", "vision_output_dim", 7680),
                 "\"vision_output_dim\" is 7680, expected 240");
  expect_refusal(with("vision_config", "supported_aspect_ratios", {{1, 1}, {2, 2}}),
                 "\"supported_aspect_ratios\" is [[1, 1], [2, 2]], expected [[1, 1], [1, 2]");
  expect_refusal(with("vision_config", "image_size", 57), "must be a multiple of");
  expect_refusal(with("vision_config", "intermediate_layers_indices", {2, 1}), "saved_layers");
  expect_refusal(with("vision_config", "intermediate_layers_indices", {1, "2"}),
                 "\"intermediate_layers_indices\" must be a list of integers");
  expect_refusal(with("text_config", "tie_word_embeddings", true), "\"tie_word_embeddings\"");
  expect_refusal(with("text_config", "attention_bias", true), "\"attention_bias\" is true");
  expect_refusal(with("text_config", "quantization_config", {{"quant_method", "awq"}}),
                 "quantized");
  for (const Layers& layers : {Layers{1, 6}, Layers{4, 1}, Layers{1, 1}, Layers{-1}})
    expect_refusal(with("text_config", "cross_attention_layers", layers), "cross_attention_layers");
  expect_refusal(with("text_config", "cross_attention_layers", {1, 2}), "vision.cross_layers");
  expect_refusal(with("text_config", "cross_attention_layers", {5}), "vision.cross_layers");
  expect_refusal(with("text_config", "cross_attention_layers", Json::array()),
                 "vision.cross_layers must be some");
}

TEST(VisionDescription, RefusesFilesOfAnotherKind) {
  Json json = hf();
  json.erase("vision_config");
  expect_refusal(json, "\"vision_config\" is missing");
  json = hf();
  json.erase("text_config");
  expect_refusal(json, "\"text_config\" is missing");
  json = hf();
  json["quantization_config"] = {{"quant_method", "bitsandbytes"}};
  expect_refusal(json, "the checkpoint is quantized (bitsandbytes)");
  json = hf();
  json["image_token_index"] = 11;
  expect_refusal(json, "image_token_id must be the first id behind the vocabulary, 768, found 11");
  json = hf()["text_config"];
  json["architectures"] = {"MllamaForCausalLM"};
  expect_refusal(json, "the text part alone of a Llama vision model");
  json = hf();
  json["architectures"] = {"LlavaForConditionalGeneration"};
  expect_refusal(json, "expected \"MllamaForConditionalGeneration\"");
}

TEST(VisionParams, SpreadCrossLayersAsMetaDoes) {
  const auto layers = [](std::int64_t all, const Json& cross) {
    Json json = params();
    json["n_layers"] = all;
    json["vision_num_cross_attention_layers"] = cross;
    return parse_meta_params(json.dump(), "p").config.vision->cross_layers;
  };
  EXPECT_EQ(layers(6, 2), (Layers{2, 5}));
  EXPECT_EQ(layers(7, 2), (Layers{2, 6}));
  EXPECT_EQ(layers(4, 1), (Layers{3}));
  expect_error<InputError>([&] { layers(4, 5); }, "is 5, expected 1 to 4");
  expect_error<InputError>([&] { layers(5, 4); }, "do not spread over 5 layers");
  expect_error<InputError>([&] { layers(4, nullptr); }, "\"vision_num_cross_attention_layers\"");
}

TEST(VisionParams, TakesTheReleasesEncoderAndNestedFields) {
  Json json = params();
  json.erase("x_tiny_vision");
  json.erase("vision_num_cross_attention_layers");
  json["vision_model"] = {{"cross_attention_adapter", {{"num_layers", 2}}}};
  const model::LlamaConfig config = parse_meta_params(json.dump(), "p").config;
  EXPECT_EQ(config.vision->width, 1280);
  EXPECT_EQ(config.vision->ffn_size, 5120);
  EXPECT_EQ(config.vision->saved_layers, (Layers{3, 7, 15, 23, 30}));
  EXPECT_EQ(config.vision->cross_layers, (Layers{1, 3}));
  const auto refuse = [&](const char* name, const Json& value, const std::string& words) {
    Json changed = json;
    changed[name] = value;
    expect_error<InputError>([&] { parse_meta_params(changed.dump(), "p"); }, words);
  };
  refuse("vision_max_num_chunks", 6, "\"vision_max_num_chunks\" is 6, expected 4");
  refuse("vision_chunk_size", -1, "\"vision_chunk_size\" is missing");
  refuse("vision_chunk_size", 450, "must be a multiple of vision.patch_size (14)");
  refuse("vision_model", Json::object(), "\"vision_num_cross_attention_layers\" is missing");
  refuse("x_tiny_vision", {{"width", 64}}, "x_tiny_vision\": \"heads\" is missing");
}

TEST(BuilderArgs, RefuseWhatIsMissingOrNotSupported) {
  const auto refuse = [&](const char* part, const char* name, const Json& value,
                          const std::string& words) {
    Json json = builders();
    json[part][name] = value;
    expect_error<InputError>([&] { parse_builder_args(json.dump(), "b"); }, words);
  };
  refuse("encoder", "clip_embed_dim", nullptr, "\"clip_embed_dim\" is missing");
  refuse("encoder", "max_num_tiles", 9, "\"max_num_tiles\" is 9, expected 4");
  refuse("encoder", "decoder_embed_dim", 32, "\"decoder_embed_dim\" is 32, expected 64");
  refuse("decoder", "fusion_interval", 0, "fusion_interval of 0");
  refuse("decoder", "fusion_interval", 5, "vision.cross_layers must be some");
  refuse("decoder", "embed_dim", 66, "embed_dim (66) must be a multiple of num_heads (4)");
  expect_error<InputError>([] { parse_builder_args("{}", "b"); }, "\"encoder\" is missing");
  Json json = builders();
  json["decoder"].erase("intermediate_dim");
  EXPECT_EQ(parse_builder_args(json.dump(), "b").ffn_size, 256);
}

}  // namespace
}  // namespace caravan::checkpoint
