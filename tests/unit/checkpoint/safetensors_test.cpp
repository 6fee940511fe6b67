#include "caravan/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <random>

#include "caravan/core/error.h"
#include "generated_files.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace caravan::checkpoint {
namespace {

using test::expect_error;
using test::safetensors_file;
using test::TemporaryFolder;

struct Safetensors : testing::Test {
  std::vector<SafetensorsEntry> read(const std::string& content) const {
    io::InputFile file(folder.write("m.safetensors", content));
    return read_safetensors_header(file);
  }
  void expect_refusal(const std::string& header, const std::string& words,
                      std::size_t data_bytes = 64) const {
    expect_error<InputError>([&] { read(safetensors_file(header, std::string(data_bytes, 'x'))); },
                             words);
  }
  TemporaryFolder folder;
};

TEST_F(Safetensors, ReadsNamesTypesAndPlaces) {
  const std::string header = R"({"__metadata__":{"format":"pt","n":"{}"},)"
                             R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                             R"("mask":{"shape":[8],"dtype":"BOOL","data_offsets":[24,32]},)"
                             R"("s":{"data_offsets":[32,34],"dtype":"BF16","shape":[]}}  )";
  const auto entries = read(safetensors_file(header, std::string(34, 'x')));
  ASSERT_EQ(entries.size(), 3U);
  const auto data = static_cast<std::int64_t>(8 + header.size());
  EXPECT_EQ(entries[0].name, "a");
  EXPECT_EQ(entries[0].type, ElementType::kF32);
  EXPECT_EQ(entries[0].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(entries[0].offset, data);
  EXPECT_EQ(entries[0].bytes, 24);
  EXPECT_EQ(entries[1].type, std::nullopt);
  EXPECT_EQ(entries[1].type_name, "BOOL");
  EXPECT_EQ(entries[2].offset, data + 32);
  EXPECT_EQ(entries[2].type, ElementType::kBF16);
}

TEST_F(Safetensors, RefusesDamagedFiles) {
  expect_error<InputError>([&] { read("short"); }, "has 5 bytes");
  expect_error<InputError>([&] { read(std::string(64, '\xff')); }, "expected at most 100000000");
  expect_error<InputError>([&] { read(test::bytes_of_one<std::uint64_t>(100) + "{}"); },
                           "but the file has 10: it is truncated");
  expect_refusal("[]", "is not a JSON object");
  expect_refusal(R"({"a":)", "is not valid JSON at byte");
  expect_refusal("{} x", "is not valid JSON");
}

TEST_F(Safetensors, RefusesSizesThatDoNotFit) {
  expect_refusal(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,20]}})",
                 "has 20 bytes of data, expected 24 for F32 [2, 3]");
  expect_refusal(R"({"a":{"dtype":"F32","shape":[20],"data_offsets":[0,80]}})", "it is truncated");
  expect_refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[8,4]}})",
                 "expected a begin and an end");
  expect_refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4]}})",
                 "expected a begin and an end");
  expect_refusal(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}})", "impossible shape");
  expect_refusal(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})",
                 "impossible shape");
  expect_refusal(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})",
                 "beyond 2^63");
  expect_refusal(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "negative number");
  expect_refusal(R"({"a":{"dtype":"X9","shape":[1],"data_offsets":[0,4]}})", "unknown type \"X9\"");
}

TEST_F(Safetensors, RefusesOverlapsDuplicatesAndStrangeStructure) {
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  expect_refusal("{" + a + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                 "\"a\" and \"b\" overlapping");
  expect_refusal("{" + a + "," + a + "}", "has \"a\" twice among its tensors");
  expect_refusal(R"({"a":{"dtype":"F32","dtype":"F32"}})", "a field twice");
  expect_refusal(R"({"a":{"dtype":"F32","shape":[1]}})", "without dtype, shape or data_offsets");
  expect_refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}})",
                 "an unknown field");
  expect_refusal(R"({"a":{"dtype":["F32"],"shape":[1],"data_offsets":[0,4]}})",
                 "a list where none is expected");
  expect_refusal(R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})",
                 "a list where none is expected");
  expect_refusal(R"({"a":{"b":{"c":{}}}})", "");
  expect_refusal(R"({"a":1})", "a number where none is expected");
  expect_refusal(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", "a real number");
  expect_refusal(R"({"a":{"dtype":"F32","shape":null,"data_offsets":[0,4]}})", "null");
  expect_refusal(R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})",
                 "too long");
}

// Whatever a byte is changed to, reading ends with entries or with a message.
TEST_F(Safetensors, SurvivesChangedBytes) {
  test::SafetensorsBuilder builder;
  builder.add("model.a", {2, 2}, {1, 2, 3, 4});
  builder.add("model.b", {3}, {5, 6, 7});
  const std::string good = builder.file();
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    std::string content = good;
    for (int i = 0; i < 1 + round % 3; ++i)
      content[random() % content.size()] = static_cast<char>(random());
    if (round % 5 == 0) content.resize(random() % content.size());
    try {
      for (const SafetensorsEntry& entry : read(content))
        EXPECT_LE(entry.offset + entry.bytes, std::ssize(content)) << "seed 7, round " << round;
    } catch (const InputError&) {  // a refusal is as good
    }
  }
}

}  // namespace
}  // namespace caravan::checkpoint
