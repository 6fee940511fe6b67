#include "caravan/batch/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "caravan/core/error.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "unit/batch/parser_rig.h"

namespace caravan::batch {
namespace {

using test::BuilderRig;
using test::completion_line;
using test::TemporaryFolder;

class WorkloadTest : public testing::Test {
 protected:
  Workload load(const std::string& content) {
    return Workload(PromptFiles({folder_.write("p.jsonl", content)}, {}), parser_, rig_.builder);
  }

  TemporaryFolder folder_;
  RequestParser parser_{test::parser_options()};
  BuilderRig rig_{64};
};

TEST_F(WorkloadTest, EmptyInputIsNoFault) {
  const Workload workload = load("\n\n");
  EXPECT_EQ(workload.size(), 0);
  workload.require_valid();
}

TEST_F(WorkloadTest, ListsEveryFaultWithItsLine) {
  const Workload workload =
      load(completion_line("a", R"("x")") + "\nnot json\n\n" + completion_line("a", R"("y")") +
           "\n" + completion_line("b", "\"" + std::string(100, 'z') + "\"") + "\n" +
           completion_line("c", R"("")") + "\n");
  EXPECT_EQ(workload.size(), 5);
  EXPECT_EQ(workload.summary().faulty, 4);
  const std::string list = workload.fault_list();
  for (const char* words : {"4 of 5 records", "p.jsonl:2: not valid JSON",
                            "p.jsonl:4: custom_id \"a\" was used before, at p.jsonl:1",
                            "p.jsonl:5: the prompt has", "p.jsonl:6: the prompt is empty"}) {
    EXPECT_NE(list.find(words), std::string::npos) << words << "\nis not in\n" << list;
  }
  test::expect_error<InputError>([&] { workload.require_valid(); }, "--on-invalid=record");
}

TEST_F(WorkloadTest, ARecordWithSeveralFaultsHasThemOnItsLine) {
  const Workload workload =
      load(completion_line("a", R"("x")") + "\n" +
           completion_line("a", R"("x")", R"(,"n":0,"max_tokens":-1)") + "\n" +
           completion_line("a", "\"" + std::string(100, 'z') + "\"") + "\n");
  const std::string list = workload.fault_list();
  EXPECT_NE(list.find("p.jsonl:2: custom_id \"a\" was used before, at p.jsonl:1; n must be between "
                      "1 and 128, found 0; max_tokens must be between 0 and"),
            std::string::npos)
      << list;
  EXPECT_NE(list.find("p.jsonl:3: custom_id \"a\" was used before, at p.jsonl:1; the prompt has"),
            std::string::npos)
      << list;
}

TEST_F(WorkloadTest, RecordsWithOneIdHaveHashesOfTheirOwn) {
  const std::string line = completion_line("a", R"("x")") + "\n";
  Workload workload = load(line + line + completion_line("a", R"("y")") + "\n" + line + "{\n{\n");
  std::set<std::pair<std::string, std::uint64_t>> keys;
  for (std::int64_t i = 0; i < workload.size(); ++i) {
    const WorkItem item = workload.item(i);
    keys.emplace(item.custom_id, item.content_hash);
  }
  EXPECT_EQ(std::ssize(keys), workload.size());
}

TEST_F(WorkloadTest, FaultyYamlPromptsAreFaultyRecords) {
  const std::vector<std::string> paths = {
      folder_.write("a.yaml", "- user: one\n- usr: two\n- user: three\n- user: {txt: x}\n"),
      folder_.write("b.jsonl", "{\n" + completion_line("ok", R"("x")") + "\n")};
  Workload workload(PromptFiles(paths, {.text_endpoint = Endpoint::kCompletion}), parser_,
                    rig_.builder);
  EXPECT_EQ(workload.size(), 6);
  EXPECT_EQ(workload.summary().faulty, 3);
  workload.require_readable();
  const std::string list = workload.fault_list();
  for (const char* words :
       {"a.yaml:2: unknown key \"usr\"", "a.yaml:4: user.txt: expected text:", "b.jsonl:1: not"}) {
    EXPECT_NE(list.find(words), std::string::npos) << words << "\nis not in\n" << list;
  }
  EXPECT_EQ(workload.item(1).custom_id, "a.yaml:2");
  EXPECT_TRUE(std::holds_alternative<RecordFault>(workload.item(1).record));
  EXPECT_TRUE(std::holds_alternative<Record>(workload.item(2).record));
}

TEST_F(WorkloadTest, AnUnreadableFileHidesNoFaultsOfOthers) {
  const std::vector<std::string> paths = {
      folder_.write("a.yaml", "user: [\n"), folder_.write("b.yaml", "- user: x\n- usr: y\n"),
      folder_.write("c.jsonl", "{\n"), folder_.write("d.yaml", "user: x\n  y: z\n")};
  const Workload workload(PromptFiles(paths, {.text_endpoint = Endpoint::kCompletion}), parser_,
                          rig_.builder);
  for (const char* words : {"/a.yaml:", "b.yaml:2: unknown key", "c.jsonl:1: not valid JSON",
                            "/d.yaml:2: not valid YAML", "2 of 3 records"}) {
    test::expect_error<InputError>([&] { workload.require_readable(); }, words);
    test::expect_error<InputError>([&] { workload.require_valid(); }, words);
  }
}

TEST_F(WorkloadTest, TextsOfUsersForgeNoLinesOfTheList) {
  const Workload workload =
      load(R"({"custom_id":"a","url":"/x\nin.jsonl:9: \u001b[2J \u009b1m forged","body":{}})"
           "\n");
  const std::string list = workload.fault_list();
  EXPECT_NE(list.find(R"(/x\nin.jsonl:9: \x1b[2J \u009b1m forged)"), std::string::npos) << list;
  EXPECT_EQ(std::count(list.begin(), list.end(), '\n'), 1) << list;
}

TEST_F(WorkloadTest, EveryFaultIsListedAndEqualOnesShareALine) {
  std::string content;
  for (int i = 0; i < 80; ++i) content += "{\n";
  content += completion_line("a", R"("x")") + "\n{\n";
  for (int i = 0; i < 60; ++i) content += "{\"x" + std::to_string(i) + "\n";
  const Workload workload = load(content);
  const std::string list = workload.fault_list();
  EXPECT_NE(list.find("141 of 142 records"), std::string::npos) << list;
  EXPECT_NE(list.find("\np.jsonl:1 to 80 (80 records): not valid JSON"), std::string::npos) << list;
  EXPECT_NE(list.find("\np.jsonl:82: not valid JSON"), std::string::npos) << list;
  EXPECT_EQ(std::count(list.begin(), list.end(), '\n'), 62) << list;
  const std::string cut = workload.fault_list(2);
  EXPECT_NE(cut.find("p.jsonl:82:"), std::string::npos) << cut;
  EXPECT_NE(cut.find("... and 60 more records"), std::string::npos) << cut;
}

TEST_F(WorkloadTest, ItemsComeBackWhenTheirTurnIs) {
  Workload workload = load(completion_line("a", R"("first")") + "\n{\n" +
                           completion_line("c", R"("third")") + "\n");
  const WorkItem third = workload.item(2);
  EXPECT_EQ(third.custom_id, "c");
  EXPECT_EQ(std::get<std::string>(std::get<Record>(third.record).prompts.at(0)), "third");
  EXPECT_EQ(workload.item(0).custom_id, "a");
  const WorkItem second = workload.item(1);
  EXPECT_EQ(second.custom_id, "p.jsonl:2");
  EXPECT_EQ(std::get<RecordFault>(second.record).code, "invalid_json");
}

TEST_F(WorkloadTest, DuplicatesAcrossFilesAreFound) {
  const std::string first = folder_.write("a.jsonl", completion_line("id", R"("x")") + "\n");
  const std::string second =
      folder_.write("b.jsonl", completion_line("id", R"("x")") + "\n" +
                                   completion_line("other", R"("x")") + "\n");
  const Workload workload(PromptFiles({first, second}, {}), parser_, rig_.builder);
  EXPECT_EQ(workload.size(), 3);
  EXPECT_NE(workload.fault_list().find("b.jsonl:1: custom_id \"id\" was used before, at a.jsonl:1"),
            std::string::npos);
  EXPECT_EQ(workload.summary().faulty, 1);
}

TEST_F(WorkloadTest, WorstCaseTakesTheLargestSequences) {
  const Workload workload =
      load(completion_line("a", R"("1234567890")", R"(,"max_tokens":20,"n":2)") + "\n" +
           completion_line("b", R"("1")", R"(,"max_tokens":1)") + "\n");
  const std::int64_t large = workload.worst_case_tokens(1);
  EXPECT_GE(large, 30);
  EXPECT_EQ(workload.worst_case_tokens(2), 2 * large);
  EXPECT_LT(workload.worst_case_tokens(3), 3 * large);
  EXPECT_EQ(workload.worst_case_tokens(3), workload.worst_case_tokens(100));
}

TEST_F(WorkloadTest, RecordsLargerThanTheCacheAreNamedAndNotFaulty) {
  Workload workload =
      load(completion_line("a", R"(["1","1234567890"])", R"(,"max_tokens":20)") + "\n" +
           completion_line("b", R"("1")", R"(,"max_tokens":1)") + "\n" +
           completion_line("c", "\"" + std::string(40, 'c') + "\"", R"(,"max_tokens":0)") + "\n" +
           completion_line("d", "\"" + std::string(40, 'd') + "\"",
                           R"(,"max_tokens":0,"echo":true,"logprobs":0)") +
           "\n{\n");
  EXPECT_TRUE(workload.too_large(39).empty());
  const auto large = workload.too_large(28);
  ASSERT_EQ(large.size(), 2U);  // "c" needs no cache at all
  EXPECT_EQ(large[0].label, "p.jsonl:1");
  EXPECT_EQ(large[0].prompt_tokens, 10);
  EXPECT_EQ(large[0].max_tokens, 20);
  EXPECT_EQ(large[1].label, "p.jsonl:4");
  EXPECT_EQ(workload.too_large(29).size(), 1U) << "the last new token is not fed back";
  EXPECT_EQ(workload.summary().faulty, 1);
}

TEST_F(WorkloadTest, CountsPromptsThatSpellTheStartToken) {
  const Workload workload =
      load(completion_line("a", R"("<eot>Hi")") + "\n" + completion_line("b", R"("Hi <eot>")") +
           "\n" + completion_line("c", "[259]") + "\n");
  EXPECT_EQ(workload.summary().bos_texts, 1);
}

TEST_F(WorkloadTest, NoticesThatTheInputChanged) {
  Workload workload = load(completion_line("a", R"("x")") + "\n");
  std::filesystem::resize_file(folder_.file("p.jsonl"), 3);
  test::expect_error<IoError>([&] { workload.item(0); }, "p.jsonl");
}

TEST_F(WorkloadTest, NoticesAChangeThatIsStillAValidRecord) {
  const std::string unchanged = completion_line("b", R"("y")") + "\n";
  Workload workload = load(completion_line("a", R"("x")") + "\n" + unchanged);
  folder_.write("p.jsonl", completion_line("a", R"("z")") + "\n" + unchanged);
  test::expect_error<IoError>([&] { workload.item(0); },
                              "p.jsonl:1: the input has changed since it was checked");
  EXPECT_EQ(workload.item(1).custom_id, "b");
}

}  // namespace
}  // namespace caravan::batch
