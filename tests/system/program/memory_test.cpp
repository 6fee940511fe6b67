// What each rank reads and holds: its own shard and cache, and nothing of the size of the model.

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "caravan/checkpoint/model_file.h"
#include "caravan/core/dtype.h"
#include "caravan/model/shard_plan.h"
#include "caravan/model/stored_parts.h"
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

  /// Totals of the ranks as `plan` prints them, in bytes.
  static std::vector<std::int64_t> planned(const Arguments& options) {
    const ProcessResult result = caravan(options);
    EXPECT_EQ(result.code, 0) << result.err;
    const std::map<std::string, double> units = {
        {"KiB", 1024}, {"MiB", kMiB}, {"GiB", 1024.0 * kMiB}};
    std::vector<std::int64_t> totals;
    std::istringstream lines(result.out.substr(result.out.find("\nrank ") + 1));
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line) && !line.empty()) {
      std::istringstream words(line);
      std::string number;
      std::string unit;
      for (std::string word; words >> word;) number = std::exchange(unit, word);
      totals.push_back(static_cast<std::int64_t>(std::stod(number) * units.at(unit)));
    }
    return totals;
  }

  /// Runs the records on each of these numbers of ranks, each rank with a cache of `kv_mib`.
  /// @param cache_is_filled  by the records: then a rank holds all that is planned.
  void expect_shares(const std::string& model_path, std::int64_t kv_mib,
                     const std::vector<int>& sizes, bool cache_is_filled = false) {
    const auto file = checkpoint::ModelFile::open(model_path);
    const auto& description = file.description();
    for (const int ranks : sizes) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks");
      const Arguments options = {"--model",
                                 model_path,
                                 "--input",
                                 input(),
                                 "--output",
                                 folder_.file("out.jsonl"),
                                 "--overwrite",
                                 "--threads",
                                 "1",
                                 "--kv-memory",
                                 std::to_string(kv_mib) + "M"};
      Arguments plan_options = {"plan", "--ranks", std::to_string(ranks)};
      plan_options.insert(plan_options.end(), options.begin(), options.end());
      const std::vector<std::int64_t> totals = planned(plan_options);
      Arguments run_options = {"run"};
      run_options.insert(run_options.end(), options.begin(), options.end());
      const ProcessResult result = caravan_on(ranks, run_options);
      ASSERT_EQ(result.code, 0) << result.err;
      const auto read = numbers(result.err, "bytes read by each rank: ");
      const auto peaks = numbers(result.err, "peak memory bytes of each rank: ");
      ASSERT_EQ(read.size(), static_cast<std::size_t>(ranks)) << result.err;
      ASSERT_EQ(peaks.size(), read.size()) << result.err;
      ASSERT_EQ(totals.size(), read.size());
      for (int rank = 0; rank < ranks; ++rank) {
        SCOPED_TRACE("rank " + std::to_string(rank));
        const auto shape = model::shard_shape(description.config, rank, ranks);
        const std::int64_t shard =
            model::shard_weight_bytes(description.config, shape, description.dtype);
        const auto index = static_cast<std::size_t>(rank);
        EXPECT_NEAR(static_cast<double>(read[index]), static_cast<double>(shard),
                    0.01 * static_cast<double>(shard));
        EXPECT_LE(peaks[index], (shard + kv_mib * kMiB) * 13 / 10 + 300 * kMiB);
        EXPECT_GE(peaks[index], shard);
        EXPECT_LE(peaks[index], totals[index] * 13 / 10);
        if (cache_is_filled) {
          EXPECT_GE(peaks[index], totals[index] * 7 / 10);
        }
      }
    }
  }
};

TEST_F(MemoryTest, EachRankReadsAndHoldsItsShareOfATinyModel) {
  folder_.write("prompts.jsonl", completion_request("a", "Hi", {{"max_tokens", 4}}));
  expect_shares(model(), 1, {1, 2, 3});
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
  expect_shares(converted, 64, {1, 2, 3});

  // Long prompts, more at once than the cache holds.
  std::string lines;
  for (int i = 0; i < 12; ++i) {
    std::vector<int> ids;
    for (int k = 0; k < 300; ++k) ids.push_back(100 + (i * 37 + k * 11) % 40000);
    lines += completion_request("long" + std::to_string(i), ids, {{"max_tokens", 2}});
  }
  folder_.write("prompts.jsonl", lines);
  expect_shares(converted, 32, {4}, true);
}

}  // namespace
}  // namespace caravan::test
