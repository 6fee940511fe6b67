// Checkpoints and the programs of others: the README's example reads what convert wrote, and a file
// that another program wrote by the README's description gives the same answers.

#include <cmath>
#include <filesystem>
#include <fstream>
#include <regex>

#include "system/program/program_rig.h"

namespace caravan::test {
namespace {

using nlohmann::json;

const std::string kCheckpoints = std::string(CARAVAN_TEST_DATA) + "/checkpoints/";

ProcessResult python(const Arguments& arguments) {
  Arguments command = {CARAVAN_PYTHON};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_process(command);
}

class ThirdParty : public testing::Test {
 protected:
  std::string convert(const std::string& checkpoint) const {
    std::string target = folder_.file("converted.h5");
    const ProcessResult result =
        caravan({"convert", kCheckpoints + checkpoint, target, "--overwrite"});
    EXPECT_EQ(result.code, 0) << result.err;
    return target;
  }
  TemporaryFolder folder_;
};

class WithPython : public ThirdParty {
 protected:
  void SetUp() override {
    const bool found =
        std::filesystem::exists(CARAVAN_PYTHON) && python({"-c", "import h5py, numpy"}).code == 0;
    if (!found)
      GTEST_SKIP() << "python3-h5py is not installed (jobs/install-packages.sh --with-tests)";
  }
  /// The example of the README, as a file.
  std::string example() const {
    const std::string readme = read_whole(std::string(CARAVAN_SOURCE_DIR) + "/README.md");
    const std::string fence = "```python\n";
    const std::size_t begin = readme.find(fence);
    EXPECT_NE(begin, std::string::npos);
    const std::size_t end = readme.find("```", begin + fence.size());
    return folder_.write("example.py",
                         readme.substr(begin + fence.size(), end - begin - fence.size()));
  }
};

void flip_byte(const std::string& path, std::int64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(offset);
  const auto byte = static_cast<char>(file.get() ^ 1);
  file.seekp(offset);
  file.put(byte);
}

TEST_F(WithPython, TheExampleOfTheReadmeReadsFilesOfAnyType) {
  for (const std::string dtype : {"bf16", "fp16", "fp32"}) {
    const std::string path = folder_.file(dtype + ".h5");
    ASSERT_EQ(caravan({"convert", kCheckpoints + "tiny-llama31-bf16", path, "--dtype", dtype}).code,
              0);
    const ProcessResult good = python({example(), path});
    ASSERT_EQ(good.code, 0) << good.err;
    EXPECT_TRUE(good.out.starts_with("2 KV heads of 16 over 64 columns")) << good.out;
    EXPECT_NE(good.out.find("first band good"), std::string::npos) << good.out;
    std::smatch found;
    ASSERT_TRUE(std::regex_search(good.out, found, std::regex("mean square ([0-9.e-]+)")));
    EXPECT_NEAR(std::stod(found[1]), 0.03133, 0.00001);

    const json about = json::parse(caravan({"inspect", path, "--json", "--tensors"}).out);
    for (const json& tensor : about.at("tensors")) {
      if (tensor.at("name") == "text.layer.0.wk") flip_byte(path, tensor.at("file_offset"));
    }
    const ProcessResult bad = python({example(), path});
    EXPECT_NE(bad.out.find("first band damaged"), std::string::npos) << bad.out << bad.err;
    EXPECT_EQ(caravan({"verify", path}).code, 78);
  }
}

TEST_F(WithPython, TheExampleOfTheReadmeReadsQuantizedMatrices) {
  double exact = 0;
  for (const std::string dtype : {"fp32", "int8", "int4"}) {
    const std::string path = folder_.file(dtype + ".h5");
    const std::string source = kCheckpoints + "tiny-k256-gguf/tiny-k256-gguf-Q6_K.gguf";
    ASSERT_EQ(caravan({"convert", source, path, "--dtype", dtype}).code, 0);
    const ProcessResult read = python({example(), path});
    ASSERT_EQ(read.code, 0) << read.err;
    EXPECT_TRUE(read.out.starts_with("2 KV heads of 32 over 256 columns")) << read.out;
    EXPECT_NE(read.out.find("first band good"), std::string::npos) << read.out;
    std::smatch found;
    ASSERT_TRUE(std::regex_search(read.out, found, std::regex("mean square ([0-9.e-]+)")));
    const double square = std::stod(found[1]);
    if (dtype == "fp32") exact = square;
    EXPECT_NEAR(square, exact, (dtype == "int4" ? 0.02 : 0.0005) * exact) << dtype;
    if (dtype != "fp32") {
      EXPECT_NE(square, exact) << dtype;
    }
  }
}

TEST_F(WithPython, AFileWrittenByTheDescriptionIsAsGoodAsOurs) {
  const std::string script =
      std::string(CARAVAN_SOURCE_DIR) + "/tests/system/formats/write_model.py";
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"tiny-llama31", "llama3.1"}, {"tiny-llama31-bf16", "llama3.1"}, {"tiny-llama2", "llama2"}};
  for (const auto& [checkpoint, chat_format] : kinds) {
    SCOPED_TRACE(checkpoint);
    const std::string written = folder_.file("written.h5");
    const ProcessResult writing = python({script, kCheckpoints + checkpoint, written, chat_format});
    ASSERT_EQ(writing.code, 0) << writing.err;
    const ProcessResult verified = caravan({"verify", written});
    EXPECT_EQ(verified.code, 0) << verified.err;

    const std::string converted = convert(checkpoint);
    const json theirs = json::parse(caravan({"inspect", written, "--json"}).out);
    const json ours = json::parse(caravan({"inspect", converted, "--json"}).out);
    EXPECT_EQ(theirs.at("model"), ours.at("model"));
    EXPECT_EQ(theirs.at("tokenizer"), ours.at("tokenizer"));
    EXPECT_EQ(theirs.at("generation"), ours.at("generation"));
    EXPECT_EQ(theirs.at("parameters"), ours.at("parameters"));
    const auto answer = [](const std::string& model) {
      return caravan({"run", "--model", model, "--prompt", "Tell me 12 things, été 日本",
                      "--max-tokens", "24", "--temperature", "0"});
    };
    const ProcessResult expected = answer(converted);
    const ProcessResult got = answer(written);
    ASSERT_EQ(expected.code, 0) << expected.err;
    ASSERT_EQ(got.code, 0) << got.err;
    EXPECT_EQ(got.out, expected.out);
    EXPECT_FALSE(got.out.empty());
  }
}

TEST_F(ThirdParty, H5dumpShowsTheFile) {
  if (!std::filesystem::exists(CARAVAN_H5DUMP)) GTEST_SKIP() << "hdf5-tools is not installed";
  for (const std::string checkpoint : {"tiny-llama2", "tiny-llama31-bf16"}) {
    const std::string path = convert(checkpoint);
    const ProcessResult result = run_process({CARAVAN_H5DUMP, "-H", path});
    ASSERT_EQ(result.code, 0) << result.err;
    for (const std::string name :
         {"ATTRIBUTE \"model\"", "GROUP \"tokenizer\"", "ATTRIBUTE \"chat_format\"",
          "DATASET \"tokens_offsets\"", "GROUP \"generation\"", "ATTRIBUTE \"stop_ids\"",
          "DATASET \"text.layer.2.w2\"", "ATTRIBUTE \"crc32c\""}) {
      EXPECT_NE(result.out.find(name), std::string::npos) << name;
    }
    const bool brain = checkpoint.ends_with("bf16");
    EXPECT_NE(result.out.find(brain ? "16-bit little-endian floating-point" : "H5T_IEEE_F32LE"),
              std::string::npos);
    const ProcessResult model = run_process({CARAVAN_H5DUMP, "-a", "/model", path});
    EXPECT_NE(model.out.find("\"num_layers\": 3"), std::string::npos) << model.out;
  }
}

}  // namespace
}  // namespace caravan::test
