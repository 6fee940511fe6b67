#include "caravan/checkpoint/model_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "caravan/checkpoint/convert.h"
#include "caravan/core/error.h"
#include "caravan/io/hdf5.h"
#include "generated_model.h"
#include "support/expect_error.h"

namespace caravan::checkpoint {
namespace {

using test::expect_error;

constexpr const char* kEmbed = "text.embed";

struct ModelFileTest : testing::Test {
  void SetUp() override {
    const test::HfFolder source;
    ConvertOptions options;
    options.source = source.write();
    options.target = path;
    convert(options);
  }

  const model::TensorSpec& spec(const ModelFile& file, const std::string& name) const {
    for (const StoredTensor& tensor : file.tensors()) {
      if (tensor.spec.name == name) return tensor.spec;
    }
    throw std::runtime_error("no tensor " + name);
  }
  std::vector<float> rows(ModelFile& file, const std::string& name, Range range) const {
    const model::TensorSpec& which = spec(file, name);
    std::vector<float> values(static_cast<std::size_t>(range.size() * which.columns));
    file.read_rows(which, range, values.data());
    return values;
  }
  /// Changes bytes of the file in place.
  void overwrite(std::int64_t offset, const std::string& bytes) const {
    std::fstream out(path, std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(offset);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    ASSERT_TRUE(out.flush());
  }
  /// Changes the file with HDF5 itself.
  template <typename Change>
  void change(Change&& with_file) const {
    const io::QuietHdf5 quiet;
    io::Hdf5Properties access(H5Pcreate(H5P_FILE_ACCESS));
    ASSERT_GE(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110), 0);
    io::Hdf5File file(H5Fopen(path.c_str(), H5F_ACC_RDWR, access.get()));
    ASSERT_TRUE(file);
    with_file(file.get());
  }
  void expect_refusal(const std::string& words) const {
    expect_error<ConfigError>([&] { ModelFile::open(path); }, words);
  }

  test::TemporaryFolder folder;
  std::string path = folder.file("model.h5");
};

TEST_F(ModelFileTest, OtherRanksGetTheSameIndexAndReadTheirBandsOnly) {
  const ModelFile first = ModelFile::open(path);
  ModelFile second = ModelFile::deserialize(first.serialize());
  EXPECT_EQ(second.path(), path);
  EXPECT_EQ(second.file_bytes(), first.file_bytes());
  EXPECT_EQ(second.description().config, first.description().config);
  EXPECT_EQ(second.description().tokenizer, first.description().tokenizer);
  EXPECT_EQ(second.description().generation, first.description().generation);
  EXPECT_EQ(second.description().chat_template, first.description().chat_template);
  EXPECT_EQ(second.description().chat_default_system, "You are a tiny test model");
  EXPECT_EQ(second.description().content_hash, first.description().content_hash);
  EXPECT_EQ(second.bytes_read(), 0);
  const auto values = rows(second, kEmbed, {64, 192});
  EXPECT_EQ(values[0], test::source_value(kEmbed, 64, 0));
  EXPECT_EQ(values.back(), test::source_value(kEmbed, 191, 19));
  EXPECT_EQ(second.bytes_read(), 128 * 20 * 4);
  const auto last = rows(second, kEmbed, {1472, 1531});  // the last band is short
  EXPECT_EQ(last.back(), test::source_value(kEmbed, 1530, 19));
  EXPECT_EQ(second.bytes_read(), (128 + 59) * 20 * 4);
  rows(second, kEmbed, {64, 64});
  EXPECT_EQ(second.bytes_read(), (128 + 59) * 20 * 4);
}

TEST_F(ModelFileTest, RowsAreWholeBands) {
  ModelFile file = ModelFile::open(path);
  EXPECT_THROW(rows(file, kEmbed, {1, 64}), InternalError);
  EXPECT_THROW(rows(file, kEmbed, {0, 65}), InternalError);
  model::TensorSpec unknown;
  unknown.name = "text.other";
  expect_error<ConfigError>([&] { file.dtype(unknown); }, "has no tensor text.other");
}

TEST_F(ModelFileTest, NamesDamagedBands) {
  ModelFile file = ModelFile::open(path);
  std::int64_t offset = 0;
  for (const StoredTensor& tensor : file.tensors()) {
    if (tensor.spec.name == kEmbed) offset = tensor.file_offset;
  }
  EXPECT_EQ(verify(path).tensors, std::ssize(file.tensors()));
  overwrite(offset + 70 * 20 * 4, "?");
  overwrite(offset + 1500 * 20 * 4, "?");
  EXPECT_NO_THROW(rows(file, kEmbed, {0, 64}));
  expect_error<ConfigError>(
      [&] {
        rows(file, kEmbed, {0, 192});
      },
      "checksum of text.embed band 1 (rows 64 to 127) differs");
  expect_error<ConfigError>([&] { verify(path); }, "text.embed band 1 (rows 64 to 127)");
  expect_error<ConfigError>([&] { verify(path); }, "text.embed band 23 (rows 1472 to 1530)");
  file.set_verify(false);
  EXPECT_NO_THROW(rows(file, kEmbed, {0, 192}));
}

TEST_F(ModelFileTest, NoticesAnotherFileOfTheSameName) {
  const ModelFile first = ModelFile::open(path);
  ModelFile second = ModelFile::deserialize(first.serialize());
  std::filesystem::resize_file(path, static_cast<std::uintmax_t>(first.file_bytes()) + 1);
  expect_error<IoError>([&] { rows(second, kEmbed, {0, 64}); }, "expected");
}

TEST_F(ModelFileTest, RefusesOtherFiles) {
  expect_error<MissingInputError>([&] { ModelFile::open(folder.file("none")); }, "No such file");
  expect_error<MissingInputError>([&] { ModelFile::open(folder.path()); }, "caravan convert");
  folder.write("model.h5", "GGUF and so on");
  expect_refusal("is a GGUF file, expected a MODEL.h5");
  folder.write("model.h5", std::string(100, 'x'));
  expect_refusal("is not an HDF5 file");
  std::filesystem::remove(path);
  {
    io::Hdf5File file = io::create_hdf5(path);
    io::close_hdf5(std::move(file), path);
  }
  expect_refusal("not a Caravan checkpoint");
}

TEST_F(ModelFileTest, RefusesEveryTruncation) {
  const auto size = std::filesystem::file_size(path);
  for (int tenth = 9; tenth >= 0; --tenth) {
    std::filesystem::resize_file(path, size / 10 * static_cast<unsigned>(tenth));
    EXPECT_THROW(ModelFile::open(path), ConfigError) << tenth << "/10";
  }
}

TEST_F(ModelFileTest, RefusesAnotherVersion) {
  change([](hid_t file) {
    ASSERT_GE(H5Adelete(file, "version"), 0);
    io::write_integer_attribute(file, "version", 3, {});
  });
  expect_refusal("has format version 3, this program reads versions 1 and 2");
  change([](hid_t file) {
    ASSERT_GE(H5Adelete(file, "version"), 0);
    io::write_integer_attribute(file, "version", 2, {});
  });
  expect_refusal("expected int8 or int4 in a file of version 2");
}

TEST_F(ModelFileTest, RefusesAChangedDescription) {
  change([](hid_t file) {
    ASSERT_GE(H5Adelete_by_name(file, "tokenizer", "bos_id", H5P_DEFAULT), 0);
  });
  expect_refusal("is damaged: its description hashes to");
  change([](hid_t file) {
    ASSERT_GE(H5Adelete(file, "dtype"), 0);
    io::write_text_attribute(file, "dtype", "int4", {});
  });
  expect_refusal("the attribute dtype is \"int4\"");
  change([](hid_t file) {
    ASSERT_GE(H5Adelete(file, "model"), 0);
    io::write_text_attribute(file, "model", "{}", {});
  });
  expect_refusal("is missing");
  change([](hid_t file) { ASSERT_GE(H5Adelete(file, "name"), 0); });
  EXPECT_THROW(ModelFile::open(path), ConfigError);
}

TEST_F(ModelFileTest, RefusesADamagedVocabulary) {
  change([](hid_t file) { ASSERT_GE(H5Ldelete(file, "tokenizer/tokens", H5P_DEFAULT), 0); });
  expect_refusal("/tokenizer/tokens_offsets must rise from 0 to 0");
}

TEST_F(ModelFileTest, RefusesMissingAndFalseTensorsAllAtOnce) {
  change([](hid_t file) {
    const io::Hdf5Group weights(H5Gopen2(file, "weights", H5P_DEFAULT));
    ASSERT_GE(H5Ldelete(weights.get(), "text.layer.0.w1", H5P_DEFAULT), 0);
    ASSERT_GE(H5Lcreate_external("/etc/passwd", "/x", weights.get(), "text.layer.0.w1", H5P_DEFAULT,
                                 H5P_DEFAULT),
              0);
    ASSERT_GE(H5Ldelete(weights.get(), "text.layer.0.w2", H5P_DEFAULT), 0);
    ASSERT_GE(H5Ldelete(weights.get(), "text.layer.0.w3", H5P_DEFAULT), 0);
    ASSERT_GE(H5Lcreate_soft("/weights/text.layer.1.w3", weights.get(), "text.layer.0.w3",
                             H5P_DEFAULT, H5P_DEFAULT),
              0);
    ASSERT_GE(H5Ldelete(weights.get(), "text.layer.1.wq", H5P_DEFAULT), 0);
    io::write_int32_dataset(weights.get(), "text.layer.1.wq", std::vector<std::int32_t>{1}, 1, {});
    ASSERT_GE(H5Adelete_by_name(weights.get(), "text.layer.1.wk", "crc32c", H5P_DEFAULT), 0);
    ASSERT_GE(H5Adelete_by_name(weights.get(), "text.layer.1.wv", "split", H5P_DEFAULT), 0);
  });
  for (const char* words :
       {"text.layer.0.w1 is a soft or external link", "text.layer.0.w2 is missing",
        "text.layer.0.w3 is a soft or external link", "text.layer.1.wq has an element type",
        "text.layer.1.wk must have 1 checksums",
        "text.layer.1.wv must be split by kv_heads in bands of 6 rows"})
    expect_refusal(words);
}

TEST_F(ModelFileTest, RefusesFurtherTensors) {
  change([](hid_t file) {
    const io::Hdf5Group weights(H5Gopen2(file, "weights", H5P_DEFAULT));
    io::write_int32_dataset(weights.get(), "text.more", std::vector<std::int32_t>{1}, 1, {});
  });
  expect_refusal("/weights has 35 tensors, expected the 34 of the model");
}

TEST_F(ModelFileTest, RefusesOtherShapesTypesAndSharedData) {
  change([](hid_t file) {
    const io::Hdf5Group weights(H5Gopen2(file, "weights", H5P_DEFAULT));
    ASSERT_GE(H5Ldelete(weights.get(), "text.final_norm", H5P_DEFAULT), 0);
    const std::vector<std::int64_t> shape = {21};
    const auto norm =
        io::create_dataset(weights.get(), "text.final_norm", H5T_IEEE_F32LE, shape, {});
  });
  expect_refusal("text.final_norm has shape [21], expected [20]");
  change([](hid_t file) {
    const io::Hdf5Group weights(H5Gopen2(file, "weights", H5P_DEFAULT));
    ASSERT_GE(H5Ldelete(weights.get(), "text.final_norm", H5P_DEFAULT), 0);
    ASSERT_GE(H5Lcreate_hard(weights.get(), "text.layer.0.attn_norm", weights.get(),
                             "text.final_norm", H5P_DEFAULT, H5P_DEFAULT),
              0);
  });
  expect_refusal("text.layer.0.attn_norm and text.final_norm share their data");
}

// Whatever bytes of the metadata are changed to, opening and verifying end with a message or with
// the content as it was.
TEST_F(ModelFileTest, SurvivesChangedBytes) {
  const std::string good = test::read_whole(path);
  const std::string hash = ModelFile::open(path).description().content_hash;
  std::mt19937 random(5);
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    std::string content = good;
    for (int i = 0; i < 8; ++i) content[random() % content.size()] = static_cast<char>(random());
    // Metadata fill the first and the last kilobytes of the file.
    content[random() % 4096] = static_cast<char>(random());
    content[content.size() - 1 - random() % 20000] = static_cast<char>(random());
    folder.write("model.h5", content);
    try {
      ModelFile file = ModelFile::open(path);
      EXPECT_EQ(file.description().content_hash, hash) << "seed 5, round " << round;
      file.verify_all();
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 200) << "the changes hardly touch anything that is checked";
}

TEST_F(ModelFileTest, InspectShowsWhatIsInIt) {
  const ModelFile file = ModelFile::open(path);
  const std::string text = inspect_text(file, true);
  for (const char* words :
       {"small-model", "2 layers, hidden 20, feed-forward 70, vocabulary 1531 (tied)",
        "3 query heads, 1 key/value heads of 6", "chatml", "stop ids [2]", "special), ",
        "bytes, for reference (--json shows it)", "text.layer.1.wq.bias", "query_heads"})
    EXPECT_NE(text.find(words), std::string::npos) << words << " in\n" << text;
  EXPECT_EQ(inspect_text(file, false).find("text.layer"), std::string::npos);
  const auto json = nlohmann::json::parse(inspect_json(file, true));
  EXPECT_EQ(json.at("format_version"), 1);
  EXPECT_EQ(json.at("dtype"), "fp32");
  EXPECT_EQ(json.at("model").at("hidden_size"), 20);
  EXPECT_EQ(json.at("content_hash"), file.description().content_hash);
  const ModelDescription& about = file.description();
  EXPECT_EQ(json.at("chat_template"), about.chat_template);
  EXPECT_EQ(json.at("tokenizer").at("split_patterns"), about.tokenizer.split_patterns);
  EXPECT_EQ(json.at("tokenizer").at("space_prefix"), "none");
  const auto& added = json.at("tokenizer").at("added_tokens");
  ASSERT_EQ(added.size(), about.tokenizer.added_tokens.size());
  EXPECT_EQ(added[0].at("id"), about.tokenizer.added_tokens[0].id);
  EXPECT_EQ(added[0].at("content"), about.tokenizer.added_tokens[0].content);
  EXPECT_EQ(added[0].at("options"), std::vector<std::string>{"special"});
  EXPECT_EQ(json.at("tensors").size(), file.tensors().size());
  EXPECT_EQ(json.at("tensors")[0].at("shape"), (std::vector<int>{1531, 20}));
  EXPECT_FALSE(nlohmann::json::parse(inspect_json(file, false)).contains("tensors"));
}

}  // namespace
}  // namespace caravan::checkpoint
