// Folders in the forms of Meta, torchtune and pickled Hugging Face weights, generated.

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "caravan/checkpoint/convert.h"
#include "caravan/checkpoint/source.h"
#include "caravan/core/error.h"
#include "generated_model.h"
#include "generated_pth.h"
#include "support/expect_error.h"

namespace caravan::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::expect_error;
using test::HfFolder;
using test::PthBuilder;
using test::TorchTensor;

void expect_refusal(const std::string& path, const std::string& words) {
  expect_error<InputError>([&] { open_source(path, {}); }, words);
}

/// Columns [begin, end) or rows [begin, end) of a matrix.
TorchTensor cut(const TorchTensor& whole, std::size_t axis, std::int64_t begin, std::int64_t end) {
  TorchTensor part = whole;
  part.shape[axis] = end - begin;
  part.values.clear();
  const std::int64_t columns = whole.shape[1];
  for (std::int64_t row = 0; row < whole.shape[0]; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::int64_t index = axis == 0 ? row : column;
      if (index >= begin && index < end)
        part.values.push_back(whole.values[static_cast<std::size_t>(row * columns + column)]);
    }
  }
  return part;
}

/// A model in Meta's form, in several files. The tokenizer is the SentencePiece one of 2000 ids.
struct MetaFolder : testing::Test {
  void SetUp() override {
    config.vocab_size = 2000;
    config.hidden_size = 16;
    config.ffn_size = 24;
    config.num_layers = 2;
    config.num_heads = 4;
    config.num_kv_heads = 2;
    config.head_dim = 4;
    params = {
        {"dim", 16},        {"n_layers", 2},    {"n_heads", 4},     {"n_kv_heads", 2},
        {"multiple_of", 8}, {"norm_eps", 1e-5}, {"vocab_size", -1}, {"ffn_dim_multiplier", 0.5}};
    fs::create_directory(path());
    fs::copy_file(std::string(CARAVAN_TEST_DATA) + "/text/spm-small/tokenizer.model",
                  path() + "/tokenizer.model");
  }
  std::string path() const { return folder.file("tiny-chat"); }
  std::string share_name(int index) const {
    return path() + "/consolidated." + (index < 10 ? "0" : "") + std::to_string(index) + ".pth";
  }
  static std::size_t axis_of(const std::string& canonical, std::size_t embedding_axis) {
    if (canonical == "text.embed") return embedding_axis;
    return canonical.ends_with(".wo") || canonical.ends_with(".w2") ? 1 : 0;
  }
  /// Writes params.json and `count` shares. Key-value heads are those of `kv_shares` parts.
  void write(int count, std::size_t embedding_axis = 0, int kv_shares = 0) const {
    folder.write("tiny-chat/params.json", params.dump());
    for (int i = 0; i < count; ++i) {
      PthBuilder builder;
      builder.add("rope.freqs", {2}, {static_cast<float>(i), 0});
      for (const TorchTensor& tensor : test::torch_tensors(config)) {
        TorchTensor share = tensor;
        if (tensor.shape.size() == 2) {
          const std::string& name = tensor.canonical_name;
          const bool kv = name.ends_with(".wk") || name.ends_with(".wv");
          const int parts = kv && kv_shares > 0 ? kv_shares : count;
          const int part = i * parts / count;
          const std::size_t axis = axis_of(name, embedding_axis);
          const std::int64_t extent = tensor.shape[axis];
          share = cut(tensor, axis, extent * part / parts, extent * (part + 1) / parts);
        }
        const auto changed = values.find({i, tensor.canonical_name});
        if (changed != values.end()) share.values = changed->second;
        builder.add(source_tensor_name(tensor.canonical_name, NameStyle::kMeta), share.shape,
                    share.values);
      }
      if (i == extra_in) builder.add("layers.0.extra.weight", {1}, {1});
      folder.write("tiny-chat/" + fs::path(share_name(i)).filename().string(), builder.file());
    }
  }
  /// Converts and compares every stored value with the generated one.
  model::LlamaConfig convert_and_compare() {
    ConvertOptions options;
    options.source = path();
    options.target = folder.file("m.h5");
    options.overwrite = true;
    options.chat_format = text::ChatFormatKind::kNone;
    convert(options);
    ModelFile file = ModelFile::open(options.target);
    for (const StoredTensor& tensor : file.tensors()) {
      const model::TensorSpec& spec = tensor.spec;
      std::vector<float> got(static_cast<std::size_t>(spec.num_elements()));
      file.read_rows(spec, {0, spec.rows}, got.data());
      for (std::int64_t i = 0; i < std::ssize(got); ++i) {
        const std::int64_t row = i / spec.columns;
        const std::int64_t column = i % spec.columns;
        const float expected = spec.transposed ? test::source_value(spec.name, column, row)
                                               : test::source_value(spec.name, row, column);
        EXPECT_EQ(got[static_cast<std::size_t>(i)], expected) << spec.name << " " << i;
      }
    }
    return file.description().config;
  }
  test::TemporaryFolder folder;
  model::LlamaConfig config;
  json params;
  std::map<std::pair<int, std::string>, std::vector<float>> values;  // of one file's tensor
  int extra_in = -1;
};

TEST_F(MetaFolder, JoinsAnyNumberOfShares) {
  for (const int count : {1, 2}) {
    for (const std::size_t axis : {0U, 1U}) {
      for (const auto& entry : fs::directory_iterator(path())) {
        if (entry.path().extension() == ".pth") fs::remove(entry.path());
      }
      write(count, axis);
      const model::LlamaConfig got = convert_and_compare();
      EXPECT_EQ(got.vocab_size, 2000);
      EXPECT_EQ(got.ffn_size, 24);
      EXPECT_EQ(got.num_kv_heads, 2);
      EXPECT_EQ(got.rope_theta, 10000);
      EXPECT_FALSE(got.tied_embeddings);
    }
  }
}

TEST_F(MetaFolder, KeepsDoubledKeyValueHeadsOnce) {
  params["n_kv_heads"] = 4;
  write(4, 0, 2);
  EXPECT_EQ(convert_and_compare().num_kv_heads, 2);
  // One value of one copy differs: these are four heads after all.
  for (const TorchTensor& tensor : test::torch_tensors(config)) {
    if (tensor.canonical_name != "text.layer.1.wv") continue;
    values[{3, tensor.canonical_name}] = cut(tensor, 0, 4, 8).values;
    values[{3, tensor.canonical_name}][5] += 1;
  }
  write(4, 0, 2);
  EXPECT_EQ(open_source(path(), {.chat_format = text::ChatFormatKind::kNone})
                .description.config.num_kv_heads,
            4);
}

// As Meta's 405B for 16 GPUs: 8 key-value heads, each in two of the files.
TEST_F(MetaFolder, JoinsSixteenFilesToWhatOneHolds) {
  config.hidden_size = 64;
  config.ffn_size = 96;
  config.num_heads = 16;
  config.num_kv_heads = 8;
  params.update({{"dim", 64}, {"n_heads", 16}, {"n_kv_heads", 8}});
  write(1);
  EXPECT_EQ(convert_and_compare().num_kv_heads, 8);
  const std::string whole = ModelFile::open(folder.file("m.h5")).description().content_hash;
  params["n_kv_heads"] = 16;
  write(16, 0, 8);
  EXPECT_EQ(convert_and_compare().num_kv_heads, 8);
  EXPECT_EQ(ModelFile::open(folder.file("m.h5")).description().content_hash, whole);
  write(16, 1, 8);  // the embedding cut along the width
  convert_and_compare();
  EXPECT_EQ(ModelFile::open(folder.file("m.h5")).description().content_hash, whole);
}

TEST_F(MetaFolder, FindsTheTokenizerBesideTheFolder) {
  write(1);
  fs::rename(path() + "/tokenizer.model", folder.file("tokenizer.model"));
  const Source source = open_source(path(), {});
  EXPECT_EQ(source.description.tokenizer.kind, text::TokenizerKind::kSentencePiece);
  EXPECT_EQ(source.description.generation.stop_ids, std::vector<std::int32_t>{2});
  EXPECT_EQ(source.description.name, "tiny-chat");
  EXPECT_EQ(open_source(share_name(0), {}).description.config, source.description.config);
  fs::rename(path(), folder.file("tiny-base"));
  fs::remove(folder.file("tokenizer.model"));
  expect_refusal(folder.file("tiny-base"), "has no tokenizer");
}

TEST_F(MetaFolder, RefusesFilesThatAreMissingOrOfAnotherModel) {
  write(4);
  fs::remove(share_name(3));
  expect_refusal(path(), "has 3 of 4 files");
  fs::remove(share_name(1));
  expect_refusal(path(), "consolidated.01.pth is missing");
  values[{1, "text.layer.1.ffn_norm"}] = std::vector<float>(16, 7);
  write(2);
  fs::remove(share_name(2));
  expect_refusal(path(), "\"layers.1.ffn_norm.weight\" differs between");
  values.clear();
  extra_in = 1;
  write(2);
  expect_refusal(path(), "\"layers.0.extra.weight\" is in");
  extra_in = 0;
  write(2);
  expect_refusal(path(), "consolidated.00.pth, but not in");
  extra_in = -1;
  params["dim"] = 32;
  params["n_heads"] = 8;
  write(1);
  fs::remove(share_name(1));
  expect_refusal(path(), "params.json is of another model");
  fs::remove(path() + "/params.json");
  expect_refusal(path(), "has no config.json (Hugging Face) or params.json (Meta)");
}

TEST_F(MetaFolder, RefusesTooManyFiles) {
  write(1);
  for (int i = 1; i < 17; ++i)
    folder.write("tiny-chat/" + fs::path(share_name(i)).filename().string(), "x");
  expect_refusal(path(), "has 17 files consolidated.*.pth");
}

/// Pickled weights in a Hugging Face folder, under names of the given style.
PthBuilder pickled_weights(NameStyle style, const model::LlamaConfig& config) {
  PthBuilder builder;
  for (const TorchTensor& tensor : test::torch_tensors(config))
    builder.add(source_tensor_name(tensor.canonical_name, style), tensor.shape, tensor.values);
  return builder;
}

struct PickledFolder : testing::Test {
  void SetUp() override {
    config = test::small_gguf_config();
    folder = std::make_unique<HfFolder>(config);
    folder->write();
    folder->remove("model.safetensors");
  }
  Source open(const std::string& name = "") const { return open_source(folder->file(name), {}); }
  model::LlamaConfig config;
  std::unique_ptr<HfFolder> folder;
};

TEST_F(PickledFolder, ReadsHuggingFaceFilesWithAndWithoutIndex) {
  folder->write("pytorch_model.bin", pickled_weights(NameStyle::kHuggingFace, config).file());
  EXPECT_EQ(open().head_order, HeadOrder::kHalfSplit);
  EXPECT_EQ(open().description.config, config);
  EXPECT_EQ(open("pytorch_model.bin").description.config, config);
  folder->write("training_args.bin", "x");
  EXPECT_NO_THROW(open());
  json map;
  for (const TorchTensor& tensor : test::torch_tensors(config)) {
    map[source_tensor_name(tensor.canonical_name, NameStyle::kHuggingFace)] =
        "pytorch_model-00001-of-00001.bin";
  }
  folder->write("pytorch_model.bin.index.json", json{{"weight_map", map}}.dump());
  expect_refusal(folder->path(), "1 of 1 weight files are missing");
  fs::rename(folder->file("pytorch_model.bin"), folder->file("pytorch_model-00001-of-00001.bin"));
  EXPECT_NO_THROW(open());
}

TEST_F(PickledFolder, ReadsTorchtunesNamesAndTakesTheNewestEpoch) {
  const std::string weights = pickled_weights(NameStyle::kTorchtune, config).file();
  folder->write("torchtune_model_2.pt", "not the newest");
  folder->write("torchtune_model_10.pt", weights);
  const Source source = open();
  EXPECT_EQ(source.head_order, HeadOrder::kInterleaved);
  EXPECT_EQ(source.files[0].path(), folder->file("torchtune_model_10.pt"));
  EXPECT_EQ(source.tensor("text.layer.1.ffn_norm").name, "layers.1.mlp_norm.scale");
  EXPECT_NE(source.description.source.find("torchtune folder"), std::string::npos);
  fs::remove(folder->file("torchtune_model_2.pt"));
  fs::remove(folder->file("torchtune_model_10.pt"));
  fs::create_directories(folder->file("epoch_2"));
  fs::create_directories(folder->file("epoch_10"));
  folder->write("epoch_10/model-00001-of-00001.bin", weights);
  folder->write("epoch_10/adapter_model.bin", "x");
  EXPECT_EQ(open().description.config, config);
  EXPECT_EQ(open("epoch_10").description.name, "small-model");
  expect_refusal(folder->file("epoch_2"), "holds no weights");
  folder->write("epoch_10/ft-model-00001-of-00001.bin", weights);
  expect_refusal(folder->file("epoch_10"), "holds several sets of weights");
  EXPECT_NO_THROW(open("epoch_10/ft-model-00001-of-00001.bin"));
}

TEST_F(PickledFolder, RefusesSeveralUnknownFiles) {
  folder->write("a.pt", "x");
  folder->write("b.pt", "x");
  expect_refusal(folder->path(), "several files that may be weights (a.pt, b.pt)");
}

}  // namespace
}  // namespace caravan::checkpoint
