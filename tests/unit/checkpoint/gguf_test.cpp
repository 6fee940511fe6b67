#include "caravan/checkpoint/gguf.h"

#include <gtest/gtest.h>

#include <random>

#include "caravan/core/error.h"
#include "generated_files.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace caravan::checkpoint {
namespace {

using test::bytes_of_one;
using test::expect_error;
using test::GgufBuilder;
using test::TemporaryFolder;

struct Gguf : testing::Test {
  GgufFile read(const std::string& content) const {
    io::InputFile file(folder.write("m.gguf", content));
    return GgufFile::read(file);
  }
  void expect_refusal(const std::string& content, const std::string& words) const {
    expect_error<InputError>([&] { read(content); }, words);
  }
  TemporaryFolder folder;
};

GgufBuilder small_file() {
  GgufBuilder builder;
  builder.text("general.architecture", "llama");
  builder.u32("llama.block_count", 3);
  builder.f32("llama.rope.freq_base", 500000);
  builder.boolean("tokenizer.ggml.add_bos_token", true);
  builder.texts("tokenizer.ggml.tokens", {"a", "", "ccc"});
  builder.integers("tokenizer.ggml.token_type", {1, 3, -1});
  builder.tensor("w", {32, 2}, 2, std::string(36, '\1'));
  builder.tensor("norm", {3}, 0, std::string(12, '\2'));
  return builder;
}

TEST_F(Gguf, ReadsMetadataAndPlaces) {
  for (const std::uint32_t version : {2U, 3U}) {
    const std::string content = small_file().file(version);
    const GgufFile gguf = read(content);
    EXPECT_EQ(gguf.text("general.architecture"), "llama");
    EXPECT_EQ(gguf.integer("llama.block_count"), 3);
    EXPECT_EQ(gguf.real("llama.rope.freq_base"), 500000);
    EXPECT_EQ(gguf.real("llama.block_count"), 3);
    EXPECT_EQ(gguf.boolean("tokenizer.ggml.add_bos_token"), true);
    EXPECT_EQ(gguf.texts("tokenizer.ggml.tokens"), (std::vector<std::string>{"a", "", "ccc"}));
    EXPECT_EQ(gguf.integers("tokenizer.ggml.token_type"), (std::vector<std::int64_t>{1, 3, -1}));
    EXPECT_EQ(gguf.integer("none"), std::nullopt);
    EXPECT_TRUE(gguf.texts("none").empty());
    ASSERT_EQ(gguf.tensors().size(), 2U);
    EXPECT_EQ(gguf.tensors()[0].shape, (std::vector<std::int64_t>{2, 32}));
    EXPECT_EQ(gguf.tensors()[0].type, ElementType::kQ4_0);
    EXPECT_EQ(gguf.tensors()[0].bytes, 36);
    EXPECT_EQ(content.substr(static_cast<std::size_t>(gguf.tensors()[1].offset), 12),
              std::string(12, '\2'));
  }
}

TEST_F(Gguf, RefusesOtherContainers) {
  expect_refusal("GGU", "it is truncated");
  expect_refusal("GGML0000", "is not a GGUF file");
  expect_refusal(small_file().file(1), "of version 1, expected 2 or 3");
  expect_refusal(small_file().file(__builtin_bswap32(3)), "big-endian");
}

TEST_F(Gguf, NamesKeyAndTypeOfUnexpectedValues) {
  const GgufFile gguf = read(small_file().file());
  expect_error<InputError>([&] { gguf.integer("general.architecture"); },
                           "\"general.architecture\" is not an integer");
  expect_error<InputError>([&] { gguf.text("llama.block_count"); }, "is not a text");
  expect_error<InputError>([&] { gguf.integers("tokenizer.ggml.tokens"); },
                           "is not an array of integers");
  GgufBuilder odd;
  odd.raw("k", 13, "");
  expect_refusal(odd.file(), "key \"k\" has the unknown type 13");
  GgufBuilder nested;
  nested.raw(
      "k", 9,
      bytes_of_one<std::uint32_t>(9) + bytes_of_one<std::uint64_t>(1) + std::string(12, '\0'));
  expect_refusal(nested.file(), "array of the unknown type 9");
  GgufBuilder huge;
  huge.raw("k", 10, std::string(8, '\xff'));
  expect_refusal(huge.file(), "beyond 2^63");
  GgufBuilder twice;
  twice.u32("k", 1);
  twice.u32("k", 1);
  expect_refusal(twice.file(), "the key \"k\" is there twice");
}

TEST_F(Gguf, RefusesFalseCountsWithoutAllocatingThem) {
  const std::string many = bytes_of_one<std::uint64_t>(std::uint64_t{1} << 60);
  const std::string version = bytes_of_one<std::uint32_t>(3);
  expect_refusal("GGUF" + version + many + many, "the number of tensors counts");
  GgufBuilder array;
  array.raw("k", 9, bytes_of_one<std::uint32_t>(8) + many);
  expect_refusal(array.file(), "key \"k\" counts 1152921504606846976");
  GgufBuilder text;
  text.raw("k", 8, many);
  expect_refusal(text.file(), "key \"k\" counts");
}

TEST_F(Gguf, RefusesMetadataThatTakeTooMuchMemory) {
  const std::string limit = "the metadata take more than 256 MiB of memory at ";
  constexpr std::uint64_t kBytes = 34 << 20;  // each becomes an integer of 8
  GgufBuilder array;
  array.raw("k", 9,
            bytes_of_one<std::uint32_t>(0) + bytes_of_one(kBytes) + std::string(kBytes, '\0'));
  expect_refusal(array.file(), limit + "key \"k\"");
  GgufBuilder texts;  // empty ones, which take 8 bytes in the file and 32 as objects
  constexpr std::uint64_t kTexts = 9 << 20;
  texts.raw("k", 9,
            bytes_of_one<std::uint32_t>(8) + bytes_of_one(kTexts) + std::string(8 * kTexts, '\0'));
  expect_refusal(texts.file(), limit + "key \"k\"");
  GgufBuilder keys;
  for (int i = 0; i <= 65536; ++i) keys.raw(std::to_string(i), 0, "x");
  expect_refusal(keys.file(), "says that it has 65537 keys and 0 tensors");
}

TEST_F(Gguf, RefusesTensorsThatDoNotFit) {
  const auto with_tensor = [&](const std::vector<std::uint64_t>& dims, std::uint32_t type,
                               std::uint64_t offset) {
    GgufBuilder builder;
    builder.tensor("a", {8}, 0, std::string(32, 'x'));
    builder.tensor_at("t", dims, type, offset);
    return builder.file();
  };
  expect_refusal(with_tensor({32}, 16, 32),
                 "has the type IQ2_XXS, which this version does not read");
  expect_refusal(with_tensor({32}, 99, 32), "has the type number 99");
  expect_refusal(with_tensor({33, 2}, 2, 32), "rows of 33 elements");
  expect_refusal(with_tensor({0, 2}, 0, 32), "impossible shape [2, 0]");
  expect_refusal(with_tensor({std::uint64_t{1} << 40, std::uint64_t{1} << 40}, 0, 32),
                 "impossible shape");
  expect_refusal(with_tensor({1, 1, 1, 1, 1}, 0, 32), "has 5 dimensions");
  expect_refusal(with_tensor({}, 0, 32), "has 0 dimensions");
  expect_refusal(with_tensor({1}, 0, 31), "expected a multiple of 32");
  expect_refusal(with_tensor({1000}, 0, 0), "it is truncated");
  expect_refusal(with_tensor({8}, 0, 0), "\"a\" and \"t\" overlapping");
  expect_refusal(with_tensor({1}, 0, std::uint64_t{1} << 63), "beyond 2^63");
  GgufBuilder twice;
  twice.tensor("t", {8}, 0, std::string(32, 'x'));
  twice.tensor("t", {8}, 0, std::string(32, 'x'));
  expect_refusal(twice.file(), "has \"t\" twice among its tensors");
  GgufBuilder alignment;
  alignment.u32("general.alignment", 3);
  expect_refusal(alignment.file(), "general.alignment is 3");
}

TEST_F(Gguf, RefusesEveryTruncation) {
  const std::string good = small_file().file();
  for (std::size_t length = 0; length < good.size(); ++length)
    expect_error<InputError>([&] { read(good.substr(0, length)); }, "m.gguf");
}

TEST_F(Gguf, SurvivesChangedBytes) {
  const std::string good = small_file().file();
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    std::string content = good;
    for (int i = 0; i < 1 + round % 3; ++i)
      content[random() % content.size()] = static_cast<char>(random());
    try {
      const GgufFile gguf = read(content);
      for (const SourceTensor& tensor : gguf.tensors())
        EXPECT_LE(tensor.offset + tensor.bytes, std::ssize(content)) << "seed 11, round " << round;
    } catch (const InputError&) {  // a refusal is as good
    }
  }
}

}  // namespace
}  // namespace caravan::checkpoint
