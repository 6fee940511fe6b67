// What each rank reads and holds: its own shard and cache, and nothing of the size of the model.

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "caravan/checkpoint/model_file.h"
#include "caravan/core/dtype.h"
#include "caravan/model/shard_plan.h"
#include "system/program/program_rig.h"

namespace caravan::test {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

class MemoryTest : public ProgramTest {
 protected:
  /// Numbers behind `words` in a log.
  static std::vector<std::int64_t> numbers(const std::string& log, const std::string& words) {
    std::vector<std::int64_t> found;
    const auto begin = log.find(words);
    if (begin == std::string::npos) return found;
    std::istringstream list(
        log.substr(begin + words.size(), log.find('\n', begin) - begin - words.size()));
    for (std::string number; std::getline(list, number, ',');) found.push_back(std::stoll(number));
    return found;
  }

  /// Runs a record on 1, 2 and 3 ranks, each with a cache of `kv_mib`.
  void expect_shares(const std::string& model_path, std::int64_t kv_mib) {
    const auto file = checkpoint::ModelFile::open(model_path);
    const auto& description = file.description();
    const std::int64_t bytes = element_bytes(description.dtype);
    for (const int ranks : {1, 2, 3}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks");
      const ProcessResult result =
          caravan_on(ranks, {"run", "--model", model_path, "--input", input(), "--output",
                             folder_.file("out.jsonl"), "--overwrite", "--threads", "1",
                             "--kv-memory", std::to_string(kv_mib) + "M"});
      ASSERT_EQ(result.code, 0) << result.err;
      const auto read = numbers(result.err, "bytes read by each rank: ");
      const auto peaks = numbers(result.err, "peak memory bytes of each rank: ");
      ASSERT_EQ(read.size(), static_cast<std::size_t>(ranks)) << result.err;
      ASSERT_EQ(peaks.size(), read.size()) << result.err;
      for (int rank = 0; rank < ranks; ++rank) {
        SCOPED_TRACE("rank " + std::to_string(rank));
        const auto shape = model::shard_shape(description.config, rank, ranks);
        const std::int64_t shard = model::shard_weight_bytes(description.config, shape, bytes);
        const auto index = static_cast<std::size_t>(rank);
        EXPECT_NEAR(static_cast<double>(read[index]), static_cast<double>(shard),
                    0.01 * static_cast<double>(shard));
        EXPECT_LE(peaks[index], (shard + kv_mib * kMiB) * 13 / 10 + 300 * kMiB);
        EXPECT_GE(peaks[index], shard);
      }
    }
  }
};

TEST_F(MemoryTest, EachRankReadsAndHoldsItsShareOfATinyModel) {
  folder_.write("prompts.jsonl", completion_request("a", "Hi", {{"max_tokens", 4}}));
  expect_shares(model(), 1);
}

TEST_F(MemoryTest, EachRankReadsAndHoldsItsShareOfARealModel) {
  const std::string source = CARAVAN_MODELS_DIR "/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(source)) {
    GTEST_SKIP() << source << " is not there (jobs/get-models.sh)";
  }
  const std::string converted = folder_.file("real.h5");
  const ProcessResult result = caravan({"convert", source, converted});
  ASSERT_EQ(result.code, 0) << result.err;
  folder_.write("prompts.jsonl", completion_request("a", "Hi", {{"max_tokens", 4}}));
  expect_shares(converted, 64);
}

}  // namespace
}  // namespace caravan::test
