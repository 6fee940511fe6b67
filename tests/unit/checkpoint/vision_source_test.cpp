// Sources of Llama 3.2 Vision models: names, views of their tensors, and what is refused.

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "caravan/checkpoint/convert.h"
#include "caravan/checkpoint/source.h"
#include "caravan/core/error.h"
#include "edited_safetensors.h"
#include "generated_model.h"
#include "support/expect_error.h"

namespace caravan::checkpoint {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::expect_error;

constexpr const char* kTile = "vision_model.gated_positional_embedding.tile_embedding.weight";
constexpr const char* kGate = "language_model.model.layers.1.cross_attn_attn_gate";
constexpr std::int64_t kTileElements = 17 * 80;  // of one tile in kTile

SourceOptions options() { return {.chat_format = text::ChatFormatKind::kLlama32Vision}; }

/// A copy of tiny-vision or of another form of it.
struct VisionFolder : testing::Test {
  void copy(const std::string& form) {
    fs::remove_all(path());
    fs::copy(test::kCheckpoints + "/" + form, path(), fs::copy_options::recursive);
  }
  void SetUp() override { copy("tiny-vision"); }
  std::string path() const { return folder.file("tiny-instruct"); }
  std::string file(const std::string& name) const { return path() + "/" + name; }
  void write(const std::string& name, std::string_view content) const {
    folder.write("tiny-instruct/" + name, content);
  }
  void write_weights() const { write("model.safetensors", weights.file()); }
  Json json(const std::string& name) const { return Json::parse(test::read_whole(file(name))); }
  Source open() const { return open_source(path(), options()); }
  std::string converted_hash() const {
    ConvertOptions convert_options;
    convert_options.source = path();
    convert_options.target = folder.file("m.h5");
    convert_options.overwrite = true;
    convert_options.chat_format = text::ChatFormatKind::kLlama32Vision;
    return convert(convert_options).content_hash;
  }
  void expect_refusal(const std::string& words) const {
    expect_error<InputError>([this] { open(); }, words);
  }
  test::TemporaryFolder folder;
  test::EditedSafetensors weights{
      test::read_whole(test::kCheckpoints + "/tiny-vision/model.safetensors")};
};

TEST_F(VisionFolder, ReadsBothDialectsOfHuggingFace) {
  const std::string hash = converted_hash();
  weights.rename_prefix("language_model.lm_head.", "lm_head.");
  weights.rename_prefix("language_model.model.", "model.language_model.");
  weights.rename_prefix("vision_model.", "model.vision_model.");
  weights.rename_prefix("multi_modal_projector.", "model.multi_modal_projector.");
  write_weights();
  EXPECT_EQ(converted_hash(), hash);
  EXPECT_EQ(open().tensor("text.layer.2.wq").name,
            "model.language_model.layers.3.self_attn.q_proj.weight");
  // The parts are recognised one by one.
  weights.rename_prefix("model.language_model.", "language_model.model.");
  write_weights();
  EXPECT_EQ(converted_hash(), hash);
}

TEST_F(VisionFolder, DescribesTheModel) {
  const Source source = open();
  const ModelDescription& about = source.description;
  EXPECT_EQ(about.config.vision->extra_embeddings, 8);
  EXPECT_EQ(about.chat_format, text::ChatFormatKind::kLlama32Vision);
  EXPECT_EQ(about.generation.stop_ids, (std::vector<std::int32_t>{513, 520, 521}));
  EXPECT_EQ(source.head_order, HeadOrder::kHalfSplit);
  EXPECT_EQ(source.tensor("text.embed_extra").shape, (std::vector<std::int64_t>{8, 64}));
  EXPECT_EQ(source.tensor("vision.position_tile").parts.size(), 8U);
}

TEST_F(VisionFolder, IsShownByInspect) {
  converted_hash();
  const ModelFile file = ModelFile::open(folder.file("m.h5"));
  const std::string text = inspect_text(file, false);
  for (const char* words :
       {"4 layers, hidden 64", "2 layers, before layers 1, 3",
        "up to 4 tiles of 56 x 56 pixels, 17 image tokens each, token id 768",
        "3 local and 2 global layers, width 80, 4 heads of 20, feed-forward 320"})
    EXPECT_NE(text.find(words), std::string::npos) << words << " in\n" << text;
  const Json shown = Json::parse(inspect_json(file, true));
  EXPECT_EQ(shown["model"]["architecture"], "mllama");
  EXPECT_EQ(shown["model"]["vision"]["cross_layers"], (std::vector<int>{1, 3}));
  EXPECT_EQ(shown["tensors"].size(), file.tensors().size());
}

// Answers depend on what is not in any tensor.
TEST_F(VisionFolder, HasAnotherHashWithAnotherEncoder) {
  const std::string hash = converted_hash();
  for (const auto& [name, value] :
       {std::pair("norm_eps", Json(1e-6)), std::pair("intermediate_layers_indices", Json({0, 2})),
        std::pair("attention_heads", Json(8))}) {
    copy("tiny-vision");
    Json config = json("config.json");
    config["vision_config"][name] = value;
    write("config.json", config.dump());
    EXPECT_NE(converted_hash(), hash) << name;
  }
  copy("tiny-vision");
  EXPECT_EQ(converted_hash(), hash);
}

// Meta's file has a reserved token where its code knows the image token; ours has it behind the
// vocabulary, as Hugging Face's.
TEST_F(VisionFolder, GivesTheImageTokenTheFirstIdBehindTheVocabulary) {
  for (const std::string form : {"tiny-vision", "tiny-vision-meta", "tiny-vision-tune"}) {
    copy(form);
    const text::TokenizerSpec tokenizer = open().description.tokenizer;
    EXPECT_EQ(tokenizer.tokens.size(), 769U) << form;
    for (const text::AddedToken& token : tokenizer.added_tokens)
      EXPECT_EQ(token.content == "<|image|>", token.id == 768) << form << " " << token.content;
    EXPECT_EQ(tokenizer.added_tokens.back().id, 768) << form;
    EXPECT_TRUE(tokenizer.added_tokens.back().special) << form;
  }
}

TEST_F(VisionFolder, FindsTorchtunesDescriptionAndTokenizerAbove) {
  copy("tiny-vision-tune");
  fs::create_directory(file("out"));
  fs::rename(file("model.pt"), file("out/model.pt"));
  EXPECT_EQ(open_source(file("out"), options()).description.config.vision->width, 80);
  // The base model's own description serves as well.
  fs::remove(file("builder_args.json"));
  fs::copy_file(test::kCheckpoints + "/tiny-vision/config.json", file("config.json"));
  EXPECT_EQ(open_source(file("out"), options()).description.config.num_layers, 4);
  fs::remove(file("config.json"));
  fs::copy_file(test::kCheckpoints + "/tiny-vision-meta/params.json", file("params.json"));
  EXPECT_EQ(open_source(file("out"), options()).description.config.num_layers, 4);
  fs::remove(file("params.json"));
  expect_error<InputError>([this] { open_source(file("out"), options()); },
                           "copy that of the base model beside the weights");
}

TEST_F(VisionFolder, AcceptsGatesInOtherShapes) {
  const std::string hash = converted_hash();
  auto& gate = weights.tensors.at(kGate);
  gate.shape = {};
  write_weights();
  EXPECT_EQ(converted_hash(), hash);
  gate.shape = {3};
  gate.bytes += gate.bytes + gate.bytes;
  write_weights();
  EXPECT_EQ(converted_hash(), hash);
  weights.set(kGate, 2, 0.5F);
  write_weights();
  EXPECT_EQ(converted_hash(), hash) << "the first of different values counts";
  weights.set(kGate, 0, 0.5F);
  write_weights();
  EXPECT_NE(converted_hash(), hash);
}

TEST_F(VisionFolder, RefusesTablesThatDisagree) {
  // Grid 8 (4 x 1), tile 2: no other arrangement of fewer tiles but 3 x 1 has it.
  weights.set(kTile, (8 * 4 + 2) * kTileElements + 5, 7);
  write_weights();
  expect_refusal("other values for the tile in row 2, column 0 of 4 x 1 tiles");
  weights.set(kTile, (7 * 4 + 2) * kTileElements + 5, 7);
  write_weights();
  EXPECT_NO_THROW(open());
  // Tile 3 of 3 x 1 does not exist; row 0 is of no arrangement.
  weights.set(kTile, 11, 7);
  write_weights();
  EXPECT_NO_THROW(open());
  weights.set(kTile, (7 * 4 + 3) * kTileElements, 7);
  write_weights();
  expect_refusal("has values for tile 3 of an arrangement of 3 x 1, expected zeros");
}

TEST_F(VisionFolder, RefusesTilesOfAnotherSize) {
  Json config = json("config.json");
  config["vision_config"]["image_size"] = 70;
  write("config.json", config.dump());
  expect_refusal(
      "has positions for 17 tokens of a tile (56 pixels across), but the description says tiles of "
      "70 pixels, which have 26");
  copy("tiny-vision-meta");
  Json params = json("params.json");
  params["vision_chunk_size"] = 70;
  write("params.json", params.dump());
  expect_refusal("\"vision_model.vision_encoder.positional_embedding\" has positions for 17");
  copy("tiny-vision");
  weights.tensors.at(kTile).shape = {9, 4, kTileElements};
  write_weights();
  expect_refusal("has shape [9, 4, 1360], expected [9, 5440]");
}

TEST_F(VisionFolder, RefusesOneHalfOfAModel) {
  test::EditedSafetensors text = weights;
  std::erase_if(text.tensors, [](const auto& item) {
    return item.first.starts_with("vision_model.") || item.first.starts_with("multi_modal_");
  });
  write("model.safetensors", text.file());
  expect_refusal("holds the text part alone of a Llama vision model");
  write_weights();
  fs::copy_file(test::kCheckpoints + "/tiny-llama31/config.json", file("config.json"),
                fs::copy_options::overwrite_existing);
  expect_refusal("holds a Llama vision model, but ");
}

TEST_F(VisionFolder, RefusesMissingUnknownAndIllShapedTensors) {
  const auto tensors = weights.tensors;
  weights.tensors.erase("vision_model.global_transformer.layers.1.gate_ffn");
  weights.tensors.erase("language_model.lm_head.weight");
  weights.tensors["vision_model.transformer.layers.3.mlp.fc1.bias"] = {"F32", {1}, "1234"};
  weights.tensors.at("vision_model.patch_embedding.weight").shape = {80, 3, 196};
  write_weights();
  for (const char* fault : {"vision_model.global_transformer.layers.1.gate_ffn is missing",
                            "language_model.lm_head.weight is missing",
                            "vision_model.transformer.layers.3.mlp.fc1.bias is in the source, but",
                            "vision_model.patch_embedding.weight has shape [80, 3, 196], expected"})
    expect_refusal(fault);
  weights.tensors = tensors;
  auto& embedding = weights.tensors.at("language_model.model.embed_tokens.weight");
  embedding.shape[0] = 768;
  embedding.bytes.resize(768 * 64 * 4);
  write_weights();
  expect_refusal("has 768 rows, expected the vocabulary of 768 and those of the image token");
}

TEST_F(VisionFolder, RefusesImagesPreparedInAnotherWay) {
  const Json good = json("preprocessor_config.json");
  const auto refuse = [&](const char* name, const Json& value, const std::string& words) {
    Json changed = good;
    changed[name] = value;
    write("preprocessor_config.json", changed.dump());
    expect_refusal(words);
  };
  refuse("image_processor_type", "CLIPImageProcessor", "\"image_processor_type\" is \"CLIP");
  refuse("do_pad", false, "\"do_pad\" is false, expected true");
  refuse("resample", 3, "\"resample\" is 3, expected 2 (bilinear)");
  refuse("max_image_tiles", 6, "\"max_image_tiles\" is 6, expected 4");
  refuse("image_mean", {0.5, 0.5, 0.5}, "\"image_mean\" is [0.5, 0.5, 0.5], expected [0.48145");
  refuse("image_std", {0.26862954, 0.26130258}, "\"image_std\"");
  refuse("rescale_factor", 1.0, "\"rescale_factor\" is 1.0, expected 1 / 255");
  refuse("size", {{"height", 560}, {"width", 560}},
         "\"height\" is 560, but config.json says tiles");
  // Newer folders have it inside another file.
  fs::remove(file("preprocessor_config.json"));
  EXPECT_NO_THROW(open());
  Json nested = {{"image_processor", good}};
  write("processor_config.json", nested.dump());
  EXPECT_NO_THROW(open());
  nested["image_processor"]["do_rescale"] = false;
  write("processor_config.json", nested.dump());
  expect_refusal("\"image_processor\": \"do_rescale\" is false");
}

TEST_F(VisionFolder, RefusesTokenizersOfOtherModels) {
  const Json good = json("tokenizer.json");
  Json moved = good;
  for (Json& token : moved["added_tokens"]) {
    if (token["id"] == 523) token["content"] = "<|image|>";
    if (token["id"] == 768) token["content"] = "<|other|>";
  }
  write("tokenizer.json", moved.dump());
  expect_refusal("gives <|image|> the id 523, but the model has 768");
  for (Json& token : moved["added_tokens"]) {
    if (token["id"] == 523) token["content"] = "<|reserved|>";
  }
  write("tokenizer.json", moved.dump());
  expect_refusal("has \"<|other|>\" at id 768, where the model has <|image|>");
  // That of the text model of the same size has all but the image token.
  moved["added_tokens"].erase(moved["added_tokens"].size() - 1);
  write("tokenizer.json", moved.dump());
  EXPECT_EQ(open().description.tokenizer.added_tokens.back().content, "<|image|>");
}

TEST(VisionGguf, IsRefusedByName) {
  const test::TemporaryFolder folder;
  for (const auto& [architecture, words] :
       {std::pair("mllama", "a Llama vision model as GGUF (general.architecture \"mllama\")"),
        std::pair("clip", "the image encoder of a vision model as GGUF")}) {
    test::GgufBuilder gguf;
    gguf.text("general.architecture", architecture);
    gguf.tensor("a", {32}, 0, std::string(128, '\0'));
    folder.write("m.gguf", gguf.file());
    expect_error<InputError>([&] { open_source(folder.file("m.gguf"), {}); }, words);
  }
}

}  // namespace
}  // namespace caravan::checkpoint
