// Converts each form of the small vision models and compares all stored tensors with hashes that
// were computed without this program (tests/data/make_expected_vision_weights.py).

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "caravan/checkpoint/convert.h"
#include "caravan/checkpoint/model_file.h"
#include "expected_tensors.h"
#include "support/temporary_folder.h"

namespace caravan::checkpoint {
namespace {

using Json = nlohmann::json;

const std::string kData = CARAVAN_TEST_DATA;

struct Form {
  std::string folder;
  std::string model;
};

struct VisionOracle : testing::TestWithParam<Form> {
  ModelFile convert_to(std::optional<DType> dtype) const {
    ConvertOptions options;
    options.source = kData + "/checkpoints/" + GetParam().folder;
    options.target = folder.file("model.h5");
    options.dtype = dtype;
    convert(options);
    return ModelFile::open(options.target);
  }
  test::TemporaryFolder folder;
};

TEST_P(VisionOracle, WritesTheSameBytesOfEveryTensorFromAllForms) {
  ModelFile file = convert_to({});
  const Json all = Json::parse(test::read_whole(kData + "/expected/vision-weights.json"));
  const Json& expected = all.at(GetParam().model);
  expect_stored_tensors(file, expected);
}

// As for text: matrices take the type, vectors of another source type become float32.
TEST_P(VisionOracle, StoresMatricesInTheTypeThatIsAskedFor) {
  const ModelFile file = convert_to(DType::kFloat16);
  for (const StoredTensor& tensor : file.tensors()) {
    EXPECT_EQ(tensor.dtype, tensor.spec.is_vector ? DType::kFloat32 : DType::kFloat16)
        << tensor.spec.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, VisionOracle,
                         testing::Values(Form{"tiny-vision", "tiny-vision"},
                                         Form{"tiny-vision-meta", "tiny-vision"},
                                         Form{"tiny-vision-tune", "tiny-vision"},
                                         Form{"tiny-vision-b", "tiny-vision-b"},
                                         Form{"tiny-vision-m", "tiny-vision-m"}));

}  // namespace
}  // namespace caravan::checkpoint
