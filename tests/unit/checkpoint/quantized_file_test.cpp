// Checkpoints with int8 and int4 matrices: layout, types, values, checks.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "caravan/checkpoint/convert.h"
#include "caravan/checkpoint/model_file.h"
#include "caravan/core/error.h"
#include "caravan/model/stored_parts.h"
#include "generated_model.h"
#include "quantizer.h"
#include "support/expect_error.h"

namespace caravan::checkpoint {
namespace {

using test::expect_error;
using test::HfFolder;

model::LlamaConfig grouped_config() {
  model::LlamaConfig config = test::small_config();
  config.hidden_size = 96;
  config.head_dim = 32;
  config.ffn_size = 160;  // its last band is half of one
  config.tied_embeddings = false;
  return config;
}

std::string converted(const HfFolder& folder, DType dtype) {
  ConvertOptions options;
  options.source = folder.path();
  options.target = folder.beside(fmt::format("{}.h5", dtype_name(dtype)));
  options.dtype = dtype;
  convert(options);
  return options.target;
}

/// A whole matrix [out][in] by the formulas of core/dtype.h, read part by part.
std::vector<float> stored_values(ModelFile& file, const model::TensorSpec& spec) {
  const std::vector<model::StoredPart> parts = model::stored_parts(spec, file.dtype(spec));
  std::vector<std::vector<std::uint8_t>> bytes(3);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    bytes[i].resize(static_cast<std::size_t>(parts[i].bytes()));
    file.read_rows(parts[i].spec, {0, parts[i].spec.rows}, bytes[i].data());
  }
  const bool is_int4 = file.dtype(spec) == DType::kInt4;
  const std::int64_t in = spec.transposed ? spec.rows : spec.columns;
  const std::int64_t out = spec.transposed ? spec.columns : spec.rows;
  std::vector<float> values;
  for (std::int64_t o = 0; o < out; ++o) {
    for (std::int64_t k = 0; k < in; ++k) {
      const auto at = [&](std::int64_t inputs) {
        return spec.transposed ? k / inputs * out + o : (o * in + k) / inputs;
      };
      const auto half = [&](std::size_t part) {
        return load_element(bytes[part].data(), DType::kFloat16, at(32));
      };
      if (!is_int4) {
        const auto code = static_cast<std::int8_t>(bytes[0][static_cast<std::size_t>(at(1))]);
        values.push_back(static_cast<float>(code) * half(1));
      } else {
        const std::uint8_t pair = bytes[0][static_cast<std::size_t>(at(2))];
        values.push_back(
            std::fma(static_cast<float>(k % 2 == 0 ? pair & 15 : pair >> 4), half(1), half(2)));
      }
    }
  }
  return values;
}

/// What the quantizer makes of the canonical matrix of the source.
std::vector<float> expected_values(const model::TensorSpec& spec, const model::LlamaConfig& config,
                                   DType dtype) {
  const std::int64_t in = spec.transposed ? spec.rows : spec.columns;
  const std::int64_t out = spec.transposed ? spec.columns : spec.rows;
  const bool rotated = spec.name.ends_with(".wq") || spec.name.ends_with(".wk");
  std::vector<float> values;
  for (std::int64_t o = 0; o < out; ++o) {
    const std::int64_t d = config.head_dim;
    const std::int64_t row = rotated ? o / d * d + o % 2 * (d / 2) + o % d / 2 : o;
    for (std::int64_t k = 0; k < in; ++k) values.push_back(test::source_value(spec.name, row, k));
  }
  std::vector<std::byte> codes(values.size());
  std::vector<std::uint16_t> scales(values.size() / 32);
  std::vector<std::uint16_t> minimums(values.size() / 32);
  quantize_values(values.data(), std::ssize(values), dtype,
                  {codes.data(), reinterpret_cast<std::byte*>(scales.data()),
                   reinterpret_cast<std::byte*>(minimums.data())});
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float scale = fp16_to_float(scales[i / 32]);
    if (dtype == DType::kInt8) {
      values[i] = static_cast<float>(static_cast<std::int8_t>(codes[i])) * scale;
    } else {
      const auto pair = static_cast<std::uint8_t>(codes[i / 2]);
      values[i] = std::fma(static_cast<float>(i % 2 == 0 ? pair & 15 : pair >> 4), scale,
                           fp16_to_float(minimums[i / 32]));
    }
  }
  return values;
}

TEST(QuantizedFile, HoldsTheQuantizedCanonicalMatrices) {
  const model::LlamaConfig config = grouped_config();
  HfFolder folder(config);
  folder.write();
  for (const DType dtype : {DType::kInt8, DType::kInt4}) {
    ModelFile file = ModelFile::open(converted(folder, dtype));
    EXPECT_EQ(file.description().dtype, dtype);
    file.verify_all();
    for (const model::TensorSpec& spec : model::tensor_specs(config)) {
      if (spec.is_vector) {
        EXPECT_EQ(file.dtype(spec), DType::kFloat32) << spec.name;
        continue;
      }
      const bool is_projection = spec.name.starts_with("text.layer.");
      ASSERT_EQ(file.dtype(spec), is_projection ? dtype : DType::kInt8) << spec.name;
      EXPECT_EQ(stored_values(file, spec), expected_values(spec, config, file.dtype(spec)))
          << spec.name << " of " << dtype_name(dtype);
    }
    ModelFile copy = ModelFile::deserialize(file.serialize());
    copy.verify_all();
    EXPECT_EQ(copy.tensors().size(), file.tensors().size());
    const auto json = nlohmann::json::parse(inspect_json(file, true));
    EXPECT_EQ(json.at("format_version"), 2);
    EXPECT_EQ(json.at("dtype"), dtype_name(dtype));
    std::int64_t elements = 0;
    for (const model::TensorSpec& spec : model::tensor_specs(config))
      elements += spec.num_elements();
    EXPECT_EQ(json.at("parameters"), elements);
  }
}

TEST(QuantizedFile, DamageOfAnyPartIsFound) {
  HfFolder folder(grouped_config());
  folder.write();
  const std::string path = converted(folder, DType::kInt4);
  for (const char* name : {"text.layer.0.w2", "text.layer.1.wk.scales", "text.layer.1.w2.minimums",
                           "text.layer.0.wo.scales", "text.embed.scales"}) {
    const std::string damaged = folder.beside("damaged.h5");
    std::filesystem::copy_file(path, damaged, std::filesystem::copy_options::overwrite_existing);
    ModelFile file = ModelFile::open(damaged);
    for (const StoredTensor& tensor : file.tensors()) {
      if (tensor.spec.name != name) continue;
      std::fstream stream(damaged, std::ios::in | std::ios::out | std::ios::binary);
      stream.seekg(tensor.file_offset + tensor.bytes - 1);
      const int last = stream.get();
      stream.seekp(tensor.file_offset + tensor.bytes - 1);
      stream.put(static_cast<char>(last ^ 1));
    }
    expect_error<ConfigError>([&] { verify(damaged); },
                              std::string("the checksum of ") + name + " band");
  }
}

TEST(QuantizedFile, RefusesSizesThatCutGroups) {
  for (const auto& [member, size, text] :
       {std::tuple{&model::LlamaConfig::hidden_size, 80, "hidden_size is 80, expected a multiple"},
        std::tuple{&model::LlamaConfig::head_dim, 20, "head_dim is 20, expected a multiple of 32"},
        std::tuple{&model::LlamaConfig::ffn_size, 100, "ffn_size is 100, expected a multiple"}}) {
    model::LlamaConfig config = grouped_config();
    config.*member = size;
    HfFolder folder(config);
    folder.write();
    for (const DType dtype : {DType::kInt8, DType::kInt4})
      expect_error<ConfigError>([&] { converted(folder, dtype); }, text);
  }
}

TEST(QuantizedFile, NamesValuesThatCannotBeStored) {
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), 3e38F}) {
    HfFolder bad(grouped_config());
    std::vector<float> values(96 * 96, 0.5F);
    values[96 * 5 + 34] = value;
    bad.weights = {};
    for (const test::TorchTensor& tensor : test::torch_tensors(grouped_config())) {
      const bool is_bad = tensor.canonical_name == "text.layer.1.wo";
      bad.weights.add(source_tensor_name(tensor.canonical_name, NameStyle::kHuggingFace),
                      tensor.shape, is_bad ? values : tensor.values);
    }
    bad.write();
    expect_error<InputError>([&] { converted(bad, DType::kInt4); },
                             "o_proj.weight\", row 5, column 3");
  }
}

TEST(StoredParts, HaveTheBandsOfTheirMatrix) {
  const model::LlamaConfig config = grouped_config();
  for (const DType dtype : {DType::kInt8, DType::kInt4}) {
    for (const model::TensorSpec& spec : model::tensor_specs(config)) {
      if (spec.is_vector) continue;
      const auto parts = model::stored_parts(spec, dtype);
      ASSERT_EQ(parts.size(), dtype == DType::kInt8 ? 2U : 3U);
      std::int64_t bytes = 0;
      for (const model::StoredPart& part : parts) {
        EXPECT_EQ(part.spec.num_bands(), spec.num_bands()) << part.spec.name;
        bytes += part.bytes();
      }
      EXPECT_EQ(bytes * 32, spec.num_elements() * (dtype == DType::kInt8 ? 34 : 20)) << spec.name;
    }
  }
}

}  // namespace
}  // namespace caravan::checkpoint
