#include "caravan/batch/journal.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>

#include "caravan/core/error.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace caravan::batch {
namespace {

using test::expect_error;
using test::read_whole;
using test::TemporaryFolder;

const Fingerprint kPrint = {{"input hash", "abc"}, {"temperature", "0.5"}};

std::string line_of(int number) { return "{\"n\":" + std::to_string(number) + ",\"error\":null}"; }

class JournalTest : public testing::Test {
 protected:
  Journal open(std::int64_t records = 4, const Fingerprint& print = kPrint) {
    return Journal(path_, print, records);
  }
  void fill(int from, int to) {
    Journal journal = open();
    for (int i = from; i < to; ++i) journal.append(i, line_of(i));
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.file("out.jsonl.part");
  std::string output_ = folder_.file("out.jsonl");
};

TEST_F(JournalTest, WritesLinesInInputOrder) {
  Journal journal = open();
  for (const int i : {2, 0, 3, 1}) journal.append(i, line_of(i));
  journal.finish(output_);
  EXPECT_EQ(read_whole(output_),
            line_of(0) + "\n" + line_of(1) + "\n" + line_of(2) + "\n" + line_of(3) + "\n");
  EXPECT_TRUE(std::filesystem::exists(path_));
  journal.remove();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(JournalTest, FinishesAgainWithTheOutputThatItHasWritten) {
  fill(0, 4);
  open().finish(output_, {}, io::ExistingTarget::kKeep);
  const std::string whole = read_whole(output_);
  const auto long_ago = std::filesystem::last_write_time(output_) - std::chrono::hours(1);
  std::filesystem::last_write_time(output_, long_ago);
  Journal journal = open();
  EXPECT_EQ(journal.num_done(), 4);
  journal.finish(output_, {}, io::ExistingTarget::kKeep);
  EXPECT_EQ(read_whole(output_), whole);
  EXPECT_EQ(std::filesystem::last_write_time(output_), long_ago);
  for (const std::string& other : {whole.substr(0, whole.size() - 1) + "x", whole + "{}\n",
                                   whole.substr(0, whole.size() - 1), std::string()}) {
    folder_.write("out.jsonl", other);
    expect_error<CannotCreateError>([&] { journal.finish(output_, {}, io::ExistingTarget::kKeep); },
                                    "All answers are kept");
    EXPECT_EQ(read_whole(output_), other);
  }
  journal.finish(output_);
  EXPECT_EQ(read_whole(output_), whole);
}

TEST_F(JournalTest, ContinuesAfterEveryPossibleCut) {
  fill(0, 3);
  const std::string whole = read_whole(path_);
  for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
    folder_.write("out.jsonl.part", whole.substr(0, cut));
    Journal journal = open();
    for (int i = 0; i < 4; ++i) {
      if (!journal.has(i)) journal.append(i, line_of(i));
    }
    ASSERT_EQ(journal.num_done(), 4) << "cut at " << cut;
    journal.finish(output_);
    ASSERT_EQ(read_whole(output_),
              line_of(0) + "\n" + line_of(1) + "\n" + line_of(2) + "\n" + line_of(3) + "\n")
        << "cut at " << cut;
  }
}

TEST_F(JournalTest, DropsLinesWithAWrongChecksumOnly) {
  fill(0, 3);
  std::string content = read_whole(path_);
  const auto flipped = content.find("\"n\":1") + 4;
  content[flipped] = '9';
  folder_.write("out.jsonl.part", content);
  const Journal journal = open();
  EXPECT_TRUE(journal.has(0));
  EXPECT_FALSE(journal.has(1));
  EXPECT_TRUE(journal.has(2));
  EXPECT_EQ(journal.num_dropped(), 1);
  EXPECT_EQ(journal.num_found(), 2);
}

TEST_F(JournalTest, ALineMovedToAnotherRecordIsDropped) {
  fill(0, 1);
  std::string content = read_whole(path_);
  content.replace(content.find("\"index\":0"), 9, "\"index\":3");
  folder_.write("out.jsonl.part", content);
  const Journal journal = open();
  EXPECT_EQ(journal.num_done(), 0);
  EXPECT_EQ(journal.num_dropped(), 1);
}

TEST_F(JournalTest, RefusesAnotherRunAndNamesTheDifference) {
  fill(0, 2);
  const std::string before = read_whole(path_);
  expect_error<ConfigError>(
      [&] {
        open(4, {{"input hash", "abc"}, {"temperature", "0.7"}});
      },
      "temperature: the journal has 0.5, this run has 0.7");
  expect_error<ConfigError>(
      [&] {
        open(4, {{"input hash", "abc"}});
      },
      "temperature: only the journal");
  EXPECT_EQ(read_whole(path_), before);
}

TEST_F(JournalTest, WithoutAFinishedRecordItBlocksNoOtherRun) {
  const Fingerprint other = {{"input hash", "abc"}, {"temperature", "0.7"}};
  fill(0, 0);
  std::string damaged = read_whole(path_) + R"({"index":0,"crc32c":"00000000","line":{}})" + "\n";
  for (const std::string& content : {read_whole(path_), damaged, damaged + "{\"ind"}) {
    folder_.write("out.jsonl.part", content);
    {
      Journal journal = open(4, other);
      EXPECT_EQ(journal.num_done(), 0);
      journal.append(2, line_of(2));
    }
    EXPECT_TRUE(open(4, other).has(2));
    expect_error<ConfigError>([&] { open(); }, "the journal has 0.7, this run has 0.5");
  }
}

TEST_F(JournalTest, ARecordBeyondThisRunsInputStillBlocksIt) {
  {
    Journal journal = open();
    journal.append(3, line_of(3));
  }
  expect_error<ConfigError>(
      [&] {
        open(1, {{"input hash", "other"}, {"temperature", "0.5"}});
      },
      "input hash: the journal has abc, this run has other");
}

TEST_F(JournalTest, RemovesWhatAKilledRunLeft) {
  folder_.write("out.jsonl.part-12345", "half an out");
  for (const char* kept : {"out.jsonl.part-12a", "out.jsonl.part-", "other.jsonl.part-1"}) {
    folder_.write(kept, "kept");
  }
  Journal journal = open(0);
  journal.finish(output_);
  EXPECT_FALSE(std::filesystem::exists(folder_.file("out.jsonl.part-12345")));
  for (const char* kept : {"out.jsonl.part-12a", "out.jsonl.part-", "other.jsonl.part-1"}) {
    EXPECT_EQ(read_whole(folder_.file(kept)), "kept");
  }
}

TEST_F(JournalTest, ShowsThatItIsAliveWhileItWritesALongOutput) {
  Journal journal = open(3);
  const std::string text(1 << 20, 'x');
  for (int i = 0; i < 3; ++i) journal.append(i, "{\"text\":\"" + text + "\"}");
  int alive = 0;
  journal.finish(output_, [&] { ++alive; });
  EXPECT_EQ(alive, 3);
}

TEST_F(JournalTest, RefusesAFileThatIsNoJournal) {
  folder_.write("out.jsonl.part", "my own notes\n");
  expect_error<ConfigError>([&] { open(); }, "not a journal");
  folder_.write("out.jsonl.part", "my own notes");
  expect_error<ConfigError>([&] { open(); }, "not a journal");
  EXPECT_EQ(read_whole(path_), "my own notes");
}

TEST_F(JournalTest, ALostNameIsFoundAtTheNextSync) {
  const std::string aside = folder_.file("aside");
  for (const bool replaced : {false, true}) {
    Journal journal = open();
    if (!journal.has(0)) journal.append(0, line_of(0));
    journal.sync();
    std::filesystem::rename(path_, aside);
    if (replaced) folder_.write("out.jsonl.part", "");
    expect_error<IoError>([&] { journal.sync(); }, "was deleted, moved or replaced");
    std::filesystem::rename(aside, path_);
    journal.sync();
  }
}

TEST_F(JournalTest, OnceAllIsDoneItsNameIsNotNeeded) {
  for (const bool replaced : {false, true}) {
    std::filesystem::remove(path_);
    Journal journal = open(1);
    std::filesystem::remove(path_);
    if (replaced) folder_.write("out.jsonl.part", "another");
    journal.append(0, line_of(0));
    journal.sync();
    journal.finish(output_);
    journal.remove();
    EXPECT_EQ(read_whole(output_), line_of(0) + "\n");
    EXPECT_EQ(std::filesystem::exists(path_), replaced);
  }
}

TEST_F(JournalTest, KeepsAnOutputThatAppearedAndAllAnswers) {
  fill(0, 4);
  folder_.write("out.jsonl", "of somebody else");
  Journal journal = open();
  expect_error<CannotCreateError>([&] { journal.finish(output_, {}, io::ExistingTarget::kKeep); },
                                  "All answers are kept");
  EXPECT_EQ(read_whole(output_), "of somebody else");
  EXPECT_EQ(open().num_done(), 4);
  std::filesystem::remove(output_);
  journal.finish(output_, {}, io::ExistingTarget::kKeep);
  EXPECT_EQ(read_whole(output_).substr(0, line_of(0).size()), line_of(0));
}

TEST_F(JournalTest, CountsErrorLines) {
  Journal journal = open(2);
  journal.append(0, line_of(0));
  journal.append(1, R"({"error":{"code":"x"}})");
  EXPECT_EQ(journal.num_errors(), 1);
}

TEST_F(JournalTest, NoRecordsGiveAnEmptyOutput) {
  Journal journal = open(0);
  journal.finish(output_);
  EXPECT_EQ(read_whole(output_), "");
}

TEST_F(JournalTest, AFullDiskKeepsWhatWasWritten) {
  std::signal(SIGXFSZ, SIG_IGN);
  Journal journal = open();
  journal.append(0, line_of(0));
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit small = old;
  small.rlim_cur = std::filesystem::file_size(path_) + 10;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_error<IoError>([&] { journal.append(1, line_of(1)); }, "1 of 4 records done");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_FALSE(journal.has(1));
  journal.append(1, line_of(1));
  const Journal again = open();
  EXPECT_EQ(again.num_done(), 2);
  EXPECT_EQ(again.num_dropped(), 0);
}

}  // namespace
}  // namespace caravan::batch
