#include "caravan/checkpoint/convert.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <vector>

#include "caravan/checkpoint/model_file.h"
#include "caravan/checkpoint/model_writer.h"
#include "caravan/checkpoint/source.h"
#include "caravan/checkpoint/tensor_stream.h"
#include "caravan/core/error.h"
#include "generated_model.h"
#include "support/expect_error.h"

namespace caravan::checkpoint {
namespace {

using test::expect_error;
using test::HfFolder;

/// Element (row, column) that must be stored, from the definition of the canonical layout.
float canonical_value(const model::TensorSpec& spec, const model::LlamaConfig& config,
                      HeadOrder order, std::int64_t row, std::int64_t column) {
  if (spec.transposed) return test::source_value(spec.name, column, row);
  const bool rotated =
      spec.name.find(".wq") != std::string::npos || spec.name.find(".wk") != std::string::npos;
  if (rotated && order == HeadOrder::kHalfSplit) {
    const std::int64_t d = config.head_dim;
    const std::int64_t pair = row % d / 2;
    row = row / d * d + (row % 2 == 0 ? pair : d / 2 + pair);
  }
  return test::source_value(spec.name, row, column);
}

void expect_canonical(ModelFile& file, HeadOrder order) {
  for (const StoredTensor& tensor : file.tensors()) {
    const model::TensorSpec& spec = tensor.spec;
    std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes));
    file.read_rows(spec, {0, spec.rows}, bytes.data());
    for (std::int64_t row = 0; row < spec.rows; ++row) {
      for (std::int64_t column = 0; column < spec.columns; ++column) {
        ASSERT_EQ(load_element(bytes.data(), tensor.dtype, row * spec.columns + column),
                  canonical_value(spec, file.description().config, order, row, column))
            << spec.name << " row " << row << " column " << column;
      }
    }
  }
}

TEST(Convert, StoresCanonicalLayoutsInEveryType) {
  HfFolder folder;
  ConvertOptions options;
  options.source = folder.write();
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    options.target = folder.beside(std::string(dtype_name(dtype)) + ".h5");
    options.dtype = dtype;
    std::map<ConvertPhase, std::vector<std::int64_t>> told;
    std::int64_t total = 0;
    options.progress = [&](ConvertPhase phase, std::int64_t done, std::int64_t all) {
      told[phase].push_back(done);
      total = all;
    };
    const ConvertSummary summary = convert(options);
    EXPECT_EQ(total, summary.bytes);
    for (const ConvertPhase phase : {ConvertPhase::kWriting, ConvertPhase::kReadingBack}) {
      EXPECT_TRUE(std::is_sorted(told[phase].begin(), told[phase].end()));
      EXPECT_EQ(told[phase].front(), 0);
      EXPECT_EQ(told[phase].back(), summary.bytes);
    }
    ModelFile file = ModelFile::open(options.target);
    EXPECT_EQ(file.description().dtype, dtype);
    EXPECT_EQ(file.description().content_hash, summary.content_hash);
    EXPECT_EQ(file.dtype(model::tensor_specs(test::small_config())[0]), dtype);
    expect_canonical(file, HeadOrder::kHalfSplit);
  }
}

TEST(Convert, LeavesGgufRowsAsTheyAre) {
  const test::TemporaryFolder folder;
  ConvertOptions options;
  options.source = folder.write("m.gguf", test::gguf_model(test::small_gguf_config()).file());
  options.target = folder.file("m.h5");
  convert(options);
  ModelFile file = ModelFile::open(options.target);
  expect_canonical(file, HeadOrder::kInterleaved);
}

// Sizes that are whole squares of the transposition, with tiles of all shapes at the borders.
TEST(Convert, TransposesMatricesOfAnySize) {
  model::LlamaConfig config = test::small_config();
  config.hidden_size = 72;
  config.ffn_size = 104;
  config.num_heads = 5;
  config.head_dim = 8;
  HfFolder folder(config);
  ConvertOptions options;
  options.source = folder.write();
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    options.target = folder.beside(std::string(dtype_name(dtype)) + ".h5");
    options.dtype = dtype;
    convert(options);
    ModelFile file = ModelFile::open(options.target);
    expect_canonical(file, HeadOrder::kHalfSplit);
  }
}

// Tiny limits, so that strips and blocks begin and end everywhere.
TEST(StreamTensor, GivesTheSameFileForAnyStripSize) {
  HfFolder folder;
  Source source = open_source(folder.write(), {});
  source.description.created_by = "test";
  std::vector<TensorToWrite> tensors;
  for (const model::TensorSpec& spec : model::tensor_specs(source.description.config))
    tensors.push_back({spec, DType::kFloat32});
  for (const std::int64_t strip_bytes : {1, 300, 2000, 30000}) {
    const std::string path = folder.beside("strips.h5");
    {
      ModelWriter writer(path, tensors);
      stream_tensors(source, tensors, writer, {strip_bytes}, [](std::int64_t) {});
      writer.finish(source.description);
    }
    ModelFile file = ModelFile::open(path);
    file.verify_all();
    expect_canonical(file, HeadOrder::kHalfSplit);
  }
}

TEST(Convert, KeepsTheSourcesTypeAndVectorsExact) {
  HfFolder folder;
  for (const auto& tensor : test::torch_tensors(test::small_config())) {
    const std::string name = source_tensor_name(tensor.canonical_name, NameStyle::kHuggingFace);
    std::vector<std::uint16_t> bits;
    for (const float value : tensor.values) bits.push_back(float_to_bf16(value));
    folder.weights.remove(name);
    folder.weights.add_raw(name, "BF16", tensor.shape, test::bytes_of(bits));
  }
  ConvertOptions options;
  options.source = folder.write();
  options.target = folder.beside("m.h5");
  convert(options);
  {
    ModelFile file = ModelFile::open(options.target);
    EXPECT_EQ(file.description().dtype, DType::kBFloat16);
    for (const StoredTensor& tensor : file.tensors()) EXPECT_EQ(tensor.dtype, DType::kBFloat16);
    expect_canonical(file, HeadOrder::kHalfSplit);
  }
  options.dtype = DType::kFloat16;
  options.overwrite = true;
  convert(options);
  const ModelFile file = ModelFile::open(options.target);
  for (const StoredTensor& tensor : file.tensors())
    EXPECT_EQ(tensor.dtype, tensor.spec.is_vector ? DType::kFloat32 : DType::kFloat16);
}

struct BadValue : testing::TestWithParam<const char*> {};

// In a plain, a reordered and a transposed tensor, and in a vector.
TEST_P(BadValue, IsRefusedWithItsPlace) {
  HfFolder folder;
  const auto with_value = [&](float value) {
    for (const auto& tensor : test::torch_tensors(test::small_config())) {
      const std::string name = source_tensor_name(tensor.canonical_name, NameStyle::kHuggingFace);
      if (name != GetParam()) continue;
      auto values = tensor.values;
      const std::int64_t columns = tensor.shape.size() == 2 ? tensor.shape[1] : 1;
      values[static_cast<std::size_t>(4 * columns + (columns > 1 ? 2 : 0))] = value;
      folder.weights.remove(name);
      folder.weights.add(name, tensor.shape, values);
    }
    return folder.write();
  };
  ConvertOptions options;
  options.target = folder.beside("m.h5");
  const auto expect_refusal = [&](float value, std::optional<DType> dtype,
                                  const std::string& words) {
    options.source = with_value(value);
    options.dtype = dtype;
    expect_error<InputError>([&] { convert(options); }, words);
    expect_error<InputError>([&] { convert(options); }, std::string(GetParam()) + "\", row 4");
    EXPECT_FALSE(std::filesystem::exists(options.target));
  };
  expect_refusal(std::nanf(""), {}, "is NaN");
  expect_refusal(std::numeric_limits<float>::infinity(), {}, "is infinite");
  const bool is_vector = std::string(GetParam()).ends_with("norm.weight");
  if (!is_vector) {  // vectors are stored in fp32 here
    expect_refusal(70000.0F, DType::kFloat16, "is 70000, too large for fp16");
    expect_refusal(3.4e38F, DType::kBFloat16, "too large for bf16");
  }
}

INSTANTIATE_TEST_SUITE_P(Tensors, BadValue,
                         testing::Values("model.embed_tokens.weight",
                                         "model.layers.1.self_attn.q_proj.weight",
                                         "model.layers.0.mlp.down_proj.weight",
                                         "model.layers.1.input_layernorm.weight"));

TEST(Convert, RefusesTargetsThatWouldDestroySomething) {
  HfFolder folder;
  ConvertOptions options;
  options.source = folder.write();
  options.target = folder.beside("m.h5");
  convert(options);
  const std::string before = test::read_whole(options.target);
  expect_error<CannotCreateError>([&] { convert(options); },
                                  "exists already; --overwrite replaces it");
  EXPECT_EQ(test::read_whole(options.target), before);
  ConvertOptions late = options;
  late.target = folder.beside("late.h5");
  late.progress = [&](ConvertPhase, std::int64_t, std::int64_t) {
    std::ofstream(late.target) << "x";
  };
  expect_error<CannotCreateError>([&] { convert(late); }, "appeared");
  EXPECT_EQ(test::read_whole(late.target), "x");
  options.overwrite = true;
  EXPECT_NO_THROW(convert(options));
  options.target = folder.file("model.safetensors");
  expect_error<UsageError>([&] { convert(options); }, "is a file of the source");
  options.target = folder.path();
  expect_error<UsageError>([&] { convert(options); }, "is the source itself");
  options.target = folder.beside("folder");
  std::filesystem::create_directory(options.target);
  expect_error<UsageError>([&] { convert(options); }, "is a folder");
  options.target = folder.beside("none/m.h5");
  EXPECT_THROW(convert(options), Error);
}

TEST(Convert, RefusesItsOwnOutputAsSource) {
  HfFolder folder;
  ConvertOptions options;
  options.source = folder.write();
  options.target = folder.beside("m.h5");
  convert(options);
  options.source = options.target;
  options.target = folder.beside("n.h5");
  expect_error<InputError>([&] { convert(options); }, "is a Caravan checkpoint already");
}

// A limit on the size of files stands in for a disk that fills up while writing.
TEST(Convert, RemovesTheTemporaryFileWhenWritingFails) {
  HfFolder folder;
  ConvertOptions options;
  options.source = folder.write();
  options.target = folder.beside("m.h5");
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limited = {100000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limited), 0);
  expect_error<IoError>([&] { convert(options); }, "File too large");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(options.target).parent_path()))
    EXPECT_EQ(entry.path().filename().string().find("m.h5"), std::string::npos) << entry.path();
  EXPECT_NO_THROW(convert(options));  // nothing is left that stands in the way
}

TEST(Convert, RemovesTheTemporaryFileWhenProgressThrows) {
  HfFolder folder;
  ConvertOptions options;
  options.source = folder.write();
  std::filesystem::create_directory(folder.beside("out"));
  options.target = folder.beside("out/m.h5");
  for (const ConvertPhase when : {ConvertPhase::kWriting, ConvertPhase::kReadingBack}) {
    for (const bool at_once : {true, false}) {
      options.progress = [&](ConvertPhase phase, std::int64_t done, std::int64_t) {
        if (phase == when && (at_once || done > 0)) throw ConfigError("enough");
      };
      expect_error<ConfigError>([&] { convert(options); }, "enough");
      EXPECT_TRUE(std::filesystem::is_empty(folder.beside("out")));
    }
  }
}

TEST(Convert, GivesTheSameHashForTheSameContent) {
  HfFolder folder;
  ConvertOptions options;
  options.source = folder.write();
  options.target = folder.beside("a.h5");
  const std::string hash = convert(options).content_hash;
  options.target = folder.beside("b.h5");
  options.name = "another name";
  EXPECT_EQ(convert(options).content_hash, hash);
  options.target = folder.beside("c.h5");
  options.chat_format = text::ChatFormatKind::kNone;
  EXPECT_NE(convert(options).content_hash, hash);
}

}  // namespace
}  // namespace caravan::checkpoint
