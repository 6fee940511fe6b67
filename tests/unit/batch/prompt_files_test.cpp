#include "caravan/batch/prompt_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "caravan/core/error.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "unit/batch/parser_rig.h"

namespace caravan::batch {
namespace {

using test::expect_error;
using test::TemporaryFolder;

struct Scanned {
  std::vector<std::string> texts;
  std::vector<std::string> labels;
};

Scanned scan(PromptFiles& files) {
  Scanned scanned;
  std::vector<RecordPlace> places;
  files.scan([&](const PromptFiles::Seen& seen) {
    scanned.texts.emplace_back(seen.text);
    scanned.labels.push_back(files.label(seen.place));
    places.push_back(seen.place);
  });
  for (std::size_t i = 0; i < places.size(); ++i) {  // the same text again on demand
    EXPECT_EQ(files.text(places[i]), scanned.texts[i]);
  }
  return scanned;
}

TEST(PromptFiles, LinesOfEveryEndingAreRecords) {
  const TemporaryFolder folder;
  const std::string path =
      folder.write("p.jsonl", "\xef\xbb\xbf{\"a\":1}\r\n\n  \t\r\n{\"b\":2}\n{\"c\":3}");
  PromptFiles files({path}, {});
  const Scanned scanned = scan(files);
  EXPECT_EQ(scanned.texts, (std::vector<std::string>{"{\"a\":1}", "{\"b\":2}", "{\"c\":3}"}));
  EXPECT_EQ(scanned.labels, (std::vector<std::string>{"p.jsonl:1", "p.jsonl:4", "p.jsonl:5"}));
  EXPECT_EQ(files.blank_lines(), 2);
}

TEST(PromptFiles, LinesLongerThanTheReadBufferStayWhole) {
  const TemporaryFolder folder;
  const std::string line(3'000'000, 'x');
  PromptFiles files({folder.write("p.txt", line + "\n" + line + "y\nshort\n")}, {});
  const Scanned scanned = scan(files);
  ASSERT_EQ(scanned.texts.size(), 3U);
  EXPECT_EQ(scanned.texts[1], line + "y");
  EXPECT_EQ(scanned.texts[2], "short");
}

TEST(PromptFiles, WholeTextFilesLoseOneLineEnd) {
  const TemporaryFolder folder;
  PromptFilesOptions options;
  options.text_files = TextFiles::kPromptPerFile;
  PromptFiles files({folder.write("a.txt", "one\ntwo\n\n"), folder.write("b.txt", " \n")}, options);
  const Scanned scanned = scan(files);
  EXPECT_EQ(scanned.texts, (std::vector<std::string>{"one\ntwo\n"}));
  EXPECT_EQ(scanned.labels, (std::vector<std::string>{"a.txt"}));
}

TEST(PromptFiles, FoldersGiveTheirPromptFilesInOrder) {
  const TemporaryFolder folder;
  folder.write("b.txt", "second\n");
  folder.write("a.jsonl", "{}\n");
  folder.write("c.md", "not read");
  folder.write(".hidden.txt", "hidden\n");
  folder.write("d.YAML", "user: third\n");
  std::filesystem::create_directory(folder.file("e.txt"));
  folder.write("e.txt/f.txt", "not entered\n");
  testing::internal::CaptureStderr();
  PromptFiles files({folder.path()}, {});
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find(": c.md, e.txt/"), std::string::npos) << log;
  EXPECT_EQ(log.find("hidden"), std::string::npos) << log;
  EXPECT_EQ(scan(files).texts, (std::vector<std::string>{"{}", "second", "third"}));
}

TEST(PromptFiles, AStopEndsReadingAndChecking) {
  const TemporaryFolder folder;
  bool stop = false;
  PromptFilesOptions options;
  options.stop_requested = [&] { return stop; };
  PromptFiles files({folder.write("p.txt", "1\n2\n3\n")}, options);
  int seen = 0;
  try {
    files.scan([&](const PromptFiles::Seen&) { stop = ++seen == 2; });
    ADD_FAILURE() << "it went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kTemporary);
  }
  EXPECT_EQ(seen, 2);
}

TEST(PromptFiles, EqualNamesAreToldApartByPath) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("x"));
  const std::string first = folder.write("p.txt", "1\n");
  const std::string second = folder.write("x/p.txt", "2\n");
  PromptFiles files({first, second}, {});
  EXPECT_EQ(scan(files).labels, (std::vector<std::string>{first + ":1", second + ":1"}));
}

TEST(PromptFiles, HashChangesWithContentAndNotWithTheNameOfBatchFiles) {
  const TemporaryFolder folder;
  const auto hash_of = [&](const std::string& name, const std::string& content) {
    PromptFiles files({folder.write(name, content)}, {});
    scan(files);
    return files.content_hash();
  };
  EXPECT_EQ(hash_of("a.jsonl", "{}\n"), hash_of("b.jsonl", "{}\n"));
  EXPECT_NE(hash_of("a.jsonl", "{}\n"), hash_of("a.jsonl", "{ }\n"));
  EXPECT_NE(hash_of("a.txt", "x\n"), hash_of("b.txt", "x\n"));  // their ids have the name
}

TEST(PromptFiles, SaysWhatIsWrongWithAnInput) {
  const TemporaryFolder folder;
  const std::string good = folder.write("p.txt", "x\n");
  expect_error<MissingInputError>([&] { PromptFiles({folder.file("none.jsonl")}, {}); },
                                  "no such file");
  expect_error<UsageError>([&] { PromptFiles({folder.write("p.csv", "x")}, {}); }, "unknown kind");
  expect_error<UsageError>([&] { PromptFiles({good, good}, {}); }, "named twice");
  std::filesystem::create_symlink(good, folder.file("link.txt"));
  std::filesystem::create_hard_link(good, folder.file("hard.txt"));
  for (const char* other : {"link.txt", "hard.txt", "./p.txt"}) {
    expect_error<UsageError>([&] { PromptFiles({good, folder.file(other)}, {}); }, "are one file");
  }
  ASSERT_EQ(::mkfifo(folder.file("pipe.txt").c_str(), 0600), 0);
  expect_error<UsageError>([&] { PromptFiles({folder.file("pipe.txt")}, {}); }, "--input -");
  std::filesystem::create_directory(folder.file("empty"));
  expect_error<MissingInputError>([&] { PromptFiles({folder.file("empty")}, {}); },
                                  "no .jsonl, .txt or .yaml");
}

TEST(PromptFiles, EveryInputWithAFaultIsNamed) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("bad"));
  for (const char* name : {"bad/x.yaml", "bad/y.txt"}) {
    ASSERT_EQ(::mkfifo(folder.file(name).c_str(), 0600), 0);
  }
  try {
    PromptFiles({folder.file("none.txt"), folder.write("good.txt", "x\n"), folder.file("nor.txt"),
                 folder.write("p.csv", "x"), folder.file("bad")},
                {});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kMissingInput);
    for (const char* words : {"none.txt: no such file", "nor.txt: no such file", "p.csv: unknown",
                              "bad/x.yaml: expected a regular file", "bad/y.txt: expected"}) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }
}

TEST(PromptFiles, OtherEndingsAreWhatTheUserSays) {
  const TemporaryFolder folder;
  PromptFilesOptions options;
  options.format = InputFormat::kYaml;
  const std::string other = folder.write("prompts.json", "- user: a\n- user: b\n");
  PromptFiles mixed({other, folder.write("p.txt", "x\ny\nz\n")}, options);
  EXPECT_EQ(scan(mixed).texts, (std::vector<std::string>{"a", "b", "x", "y", "z"}));
  options.format = InputFormat::kText;
  options.text_files = TextFiles::kPromptPerFile;
  PromptFiles whole({other}, options);
  EXPECT_EQ(scan(whole).texts.size(), 1U);
  expect_error<UsageError>([&] { PromptFiles({other}, {}); }, "--input-format");
}

TEST(PromptFiles, PlainPromptsBecomeRecordsWithPlaceAsId) {
  const TemporaryFolder folder;
  PromptFilesOptions options;
  options.system = "Be brief";
  PromptFiles files({folder.write("p.txt", "\nHello\n"),
                     folder.write("q.yaml", "- user: A\n- {system: Own, user: {text: B}}\n")},
                    options);
  const RequestParser parser(test::parser_options());
  std::vector<Record> records;
  files.scan([&](const PromptFiles::Seen& seen) {
    std::string custom_id;
    records.push_back(std::get<Record>(files.parse(seen.place, seen.text, parser, custom_id)));
  });
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[0].custom_id, "p.txt:2");
  EXPECT_EQ(records[0].messages.at(0).content, "Be brief");
  EXPECT_EQ(records[0].messages.at(1).content, "Hello");
  EXPECT_EQ(records[1].custom_id, "q.yaml:1");
  EXPECT_EQ(records[2].messages.at(0).content, "Own");
  EXPECT_EQ(records[2].messages.at(1).content, "B");
}

}  // namespace
}  // namespace caravan::batch
