// Meta's model-parallel files of vision models, generated.

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "caravan/checkpoint/convert.h"
#include "caravan/checkpoint/source.h"
#include "caravan/checkpoint/vision_names.h"
#include "caravan/core/error.h"
#include "generated_model.h"
#include "generated_pth.h"
#include "support/expect_error.h"

namespace caravan::checkpoint {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::expect_error;

/// A generated model with the structure that Meta's code fixes, in Meta's files.
struct GeneratedMeta : testing::Test {
  void SetUp() override {
    config.vocab_size = 768;
    config.hidden_size = 16;
    config.ffn_size = 16;
    config.num_layers = 4;
    config.num_heads = 4;
    config.num_kv_heads = 2;
    config.head_dim = 4;
    model::VisionConfig vision;
    vision.tile_size = 28;
    vision.patch_size = 14;
    vision.width = 32;
    vision.num_heads = 16;
    vision.ffn_size = 64;
    vision.num_local_layers = 32;
    vision.num_global_layers = 8;
    vision.saved_layers = {3, 7, 15, 23, 30};
    vision.cross_layers = {1, 3};
    vision.image_token_id = 768;
    config.vision = vision;
  }
  /// The values of the cells lie where Meta's tables of 4 x 4 have them.
  static test::TorchTensor in_meta_form(test::TorchTensor tensor) {
    const std::string& name = tensor.canonical_name;
    const bool table =
        name == "vision.position_tile" || name == "vision.pre_tile" || name == "vision.post_tile";
    if (!table) return tensor;
    const auto cells = static_cast<std::int64_t>(model::kTileCells.size());
    const std::int64_t tokens = tensor.shape[0] / cells;
    const std::int64_t cell_size = tokens * tensor.shape[1];
    std::vector<float> values(static_cast<std::size_t>(16 * cell_size), -3);
    for (std::int64_t i = 0; i < cells; ++i) {
      const model::TileCell& cell = model::kTileCells[static_cast<std::size_t>(i)];
      std::copy_n(tensor.values.begin() + i * cell_size, cell_size,
                  values.begin() + (cell.row * 4 + cell.column) * cell_size);
    }
    return {name, {4, 4, tokens, tensor.shape[1]}, values};
  }
  /// Along which axis a share is cut; -1: every file has the whole.
  static int axis(const std::string& name, const test::TorchTensor& tensor) {
    if (name.ends_with("mlp.c_fc.bias") || name.ends_with("vision_projection.bias")) return 0;
    if (tensor.shape.size() != 2 || name.ends_with("positional_embedding")) return -1;
    for (const char* end : {".wo.weight", ".w2.weight", "c_proj.weight"}) {
      if (name.ends_with(end)) return 1;
    }
    return 0;
  }
  static test::TorchTensor share(const test::TorchTensor& whole, int cut_axis, int part,
                                 int count) {
    if (cut_axis < 0) return whole;
    const std::int64_t columns = whole.shape.size() == 2 ? whole.shape[1] : 1;
    const std::int64_t extent = whole.shape[static_cast<std::size_t>(cut_axis)];
    test::TorchTensor result = {whole.canonical_name, whole.shape, {}};
    result.shape[static_cast<std::size_t>(cut_axis)] = extent / count;
    for (std::int64_t i = 0; i < std::ssize(whole.values); ++i) {
      const std::int64_t index = cut_axis == 0 ? i / columns : i % columns;
      if (index * count / extent == part)
        result.values.push_back(whole.values[static_cast<std::size_t>(i)]);
    }
    return result;
  }
  static std::string share_name(int index) {
    return "consolidated.0" + std::to_string(index) + ".pth";
  }
  void write(int count) const {
    const VisionNames names(NameStyle::kMeta, *config.vision);
    const std::vector<test::TorchTensor> tensors = test::torch_tensors(config);
    for (int i = 0; i < count; ++i) {
      test::PthBuilder builder;
      builder.add("text_model.rope.freqs", {2}, {static_cast<float>(i), 0});
      for (const test::TorchTensor& tensor : tensors) {
        const std::string name = names.of(tensor.canonical_name);
        const test::TorchTensor whole = in_meta_form(tensor);
        test::TorchTensor part = share(whole, axis(name, whole), i, count);
        const auto change = changed.find({i, name});
        if (change != changed.end()) part.values[change->second] += 1;
        builder.add(name, part.shape, part.values);
      }
      folder.write(share_name(i), builder.file());
    }
    const Json params = {{"dim", 16},
                         {"n_layers", 4},
                         {"n_heads", config.num_heads},
                         {"n_kv_heads", config.num_kv_heads},
                         {"multiple_of", 8},
                         {"norm_eps", 1e-5},
                         {"vocab_size", -1},
                         {"use_scaled_rope", true},
                         {"vision_chunk_size", 28},
                         {"vision_num_cross_attention_layers", 2}};
    folder.write("params.json", params.dump());
    fs::copy_file(test::kCheckpoints + "/tiny-vision-meta/tokenizer.model",
                  folder.file("tokenizer.model"), fs::copy_options::overwrite_existing);
  }
  /// Converts the folder, or a file of it, and compares every stored value with the generated one.
  void convert_and_compare(const std::string& source) const {
    ConvertOptions convert_options;
    convert_options.source = source;
    convert_options.target = folder.file("m.h5");
    convert_options.overwrite = true;
    convert(convert_options);
    ModelFile file = ModelFile::open(convert_options.target);
    model::LlamaConfig expected = config;
    expected.rope_theta = 500000;
    expected.max_positions = 131072;
    expected.rope_scaling = {model::RopeScalingKind::kLlama3, 8, 1, 4, 8192};
    EXPECT_EQ(file.description().config, expected);
    for (const StoredTensor& tensor : file.tensors()) {
      const model::TensorSpec& spec = tensor.spec;
      std::vector<float> got(static_cast<std::size_t>(spec.num_elements()));
      file.read_rows(spec, {0, spec.rows}, got.data());
      for (std::int64_t i = 0; i < std::ssize(got); ++i) {
        const std::int64_t row = i / spec.columns;
        const std::int64_t column = i % spec.columns;
        const float value = spec.transposed ? test::source_value(spec.name, column, row)
                                            : test::source_value(spec.name, row, column);
        ASSERT_EQ(got[static_cast<std::size_t>(i)], value) << spec.name << " " << i;
      }
    }
  }
  model::LlamaConfig config;
  test::TemporaryFolder folder;
  std::map<std::pair<int, std::string>, std::size_t> changed;  // element of one file's tensor
};

TEST_F(GeneratedMeta, TakesWidthsAndVocabularyFromTheWeightsAndJoinsTheShares) {
  for (const int count : {1, 2, 4}) {
    SCOPED_TRACE(count);
    write(count);
    convert_and_compare(folder.path());
  }
}

// As the files of 90B: each with one key-value head and one row of the image token's embedding.
TEST_F(GeneratedMeta, JoinsEightShares) {
  config.num_heads = 8;
  config.num_kv_heads = 8;
  config.head_dim = 2;
  write(8);
  convert_and_compare(folder.path());
  convert_and_compare(folder.file(share_name(5)));
}

// As the file of 11B.
TEST_F(GeneratedMeta, ReadsTheOneFileWithoutANumber) {
  write(1);
  fs::rename(folder.file(share_name(0)), folder.file("consolidated.pth"));
  convert_and_compare(folder.path());
  convert_and_compare(folder.file("consolidated.pth"));

  write(2);
  expect_error<InputError>([this] { open_source(folder.path(), {}); },
                           "holds two models, consolidated.pth and consolidated.00.pth");
  EXPECT_EQ(open_source(folder.file("consolidated.pth"), {}).files.size(), 1U);
  EXPECT_EQ(open_source(folder.file(share_name(1)), {}).files.size(), 2U);
}

// Copies are compared to their last element, whatever their number of extents.
TEST_F(GeneratedMeta, RefusesCopiesThatDiffer) {
  const std::string encoder = "vision_model.vision_encoder.";
  const std::pair<std::string, std::size_t> elements[] = {
      {encoder + "gated_positional_embedding", 16 * 5 * 32 - 1},
      {encoder + "positional_embedding", 5 * 32 - 1},
      {encoder + "post_tile_pos_embed.embedding", 40},
      {encoder + "transformer.resblocks.31.mlp.c_proj.bias", 31},
      {"text_model.cross_attention_layers.1.gate_ffwd", 0}};
  for (const auto& [name, element] : elements) {
    changed = {{{1, name}, element}};
    write(2);
    expect_error<InputError>([this] { open_source(folder.path(), {}); },
                             "\"" + name + "\" differs between");
  }
  changed.clear();
  write(4);
  fs::remove(folder.file("consolidated.03.pth"));
  expect_error<InputError>([this] { open_source(folder.path(), {}); }, "has 3 of 4 files");
}

}  // namespace
}  // namespace caravan::checkpoint
