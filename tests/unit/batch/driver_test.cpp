#include "caravan/batch/driver.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "caravan/parallel/single_communicator.h"
#include "support/temporary_folder.h"
#include "unit/batch/parser_rig.h"
#include "unit/engine/engine_rig.h"

namespace caravan::batch {
namespace {

using test::completion_line;
using test::TemporaryFolder;

constexpr std::int64_t kRecords = 200;
constexpr std::int64_t kAhead = 4;

class DriverTest : public testing::Test {
 protected:
  /// As many records as kRecords, each with these fields.
  Workload load(const std::string& fields) {
    std::string lines;
    for (std::int64_t i = 0; i < kRecords; ++i) {
      lines += completion_line("r" + std::to_string(i), R"("Hi")", fields) + "\n";
    }
    return Workload(PromptFiles({folder_.write("p.jsonl", lines)}, {}), parser_, rig_.builder);
  }
  Journal journal() { return Journal(folder_.file("out.jsonl.part"), {{"a", "b"}}, kRecords); }
  RunEnd run(Workload& workload, Journal& journal, DriverOptions options) {
    engine::Engine engine(decoder_, communicator_, context_, rig_.tokenizer, limits_);
    Driver driver(workload, rig_.builder, writer_, engine, journal);
    options.queue_ahead = kAhead;
    options.log_seconds = 0;
    const RunEnd end = driver.run(options);
    engine.stop();
    return end;
  }

  TemporaryFolder folder_;
  RequestParser parser_{test::parser_options()};
  test::BuilderRig rig_{64};
  ResponseWriter writer_{rig_.tokenizer, "tiny", "key"};
  parallel::SingleCommunicator communicator_;
  test::RandomWeightSource source_{test::uneven_config(), 42};
  ThreadTeam team_{1};
  ops::Context context_{team_, ops::detect_isa()};
  engine::EngineLimits limits_{4, 16, 40};
  model::Decoder decoder_{test::uneven_config(), source_, context_, communicator_,
                          model::DecoderLimits{limits_.max_step_tokens, limits_.kv_blocks}};
};

TEST_F(DriverTest, AnswersEveryRecordOnce) {
  Workload workload = load(R"(,"max_tokens":2,"ignore_eos":true)");
  Journal written = journal();
  EXPECT_EQ(run(workload, written, {}), RunEnd::kFinished);
  EXPECT_EQ(written.num_done(), kRecords);
  EXPECT_EQ(written.num_errors(), 0);
}

TEST_F(DriverTest, RecordsThatNeedNoStepDoNotHoldUpSignalsAndSyncs) {
  for (const char* fields : {R"(,"max_tokens":-1)", R"(,"max_tokens":0)"}) {
    SCOPED_TRACE(fields);
    std::filesystem::remove(folder_.file("out.jsonl.part"));
    Workload workload = load(fields);
    Journal written = journal();
    std::int64_t turns = 0;
    std::int64_t refreshed = 0;
    DriverOptions options;
    options.sync_seconds = 0;
    options.stop_requested = [&] { return ++turns > 3; };
    options.keep_alive = [&] { ++refreshed; };
    EXPECT_EQ(run(workload, written, options), RunEnd::kStopped);
    EXPECT_EQ(refreshed, 3);
    EXPECT_GT(written.num_done(), 0);
    EXPECT_LE(written.num_done(), 3 * kAhead);
    EXPECT_EQ(run(workload, written, {}), RunEnd::kFinished);
    EXPECT_EQ(written.num_done(), kRecords);
  }
}

TEST_F(DriverTest, PromptsOfARecordDrawForThemselves) {
  const std::string fields =
      R"(,"max_tokens":12,"ignore_eos":true,"seed":3,"n":2,"return_token_ids":true)";
  const std::string path =
      folder_.write("p.jsonl", completion_line("one", R"("Hi")", fields) + "\n" +
                                   completion_line("three", R"(["Hi","Hi","Hi"])", fields) + "\n");
  Workload workload(PromptFiles({path}, {}), parser_, rig_.builder);
  Journal written(folder_.file("out.jsonl.part"), {{"a", "b"}}, workload.size());
  EXPECT_EQ(run(workload, written, {}), RunEnd::kFinished);
  written.finish(folder_.file("out.jsonl"));
  std::istringstream lines(test::read_whole(folder_.file("out.jsonl")));
  std::vector<std::vector<nlohmann::json>> answers;  // [record][choice]
  for (std::string line; std::getline(lines, line);) {
    answers.emplace_back();
    const nlohmann::json parsed = nlohmann::json::parse(line);
    for (const auto& choice : parsed["response"]["body"]["choices"]) {
      answers.back().push_back(choice["token_ids"]);
    }
  }
  ASSERT_EQ(answers.size(), 2U);
  ASSERT_EQ(answers[1].size(), 6U);
  EXPECT_EQ(std::vector(answers[1].begin(), answers[1].begin() + 2), answers[0]);
  EXPECT_EQ(std::set(answers[1].begin(), answers[1].end()).size(), 6U);
}

}  // namespace
}  // namespace caravan::batch
