// Each mistake that a new user makes: exit code and what the message says.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>

#include "system/program/program_rig.h"

namespace caravan::test {
namespace {

namespace fs = std::filesystem;

class ErrorsTest : public ProgramTest {
 protected:
  void SetUp() override {
    folder_.write("prompts.jsonl", chat_request("a", "Hi", {{"max_tokens", 2}}));
  }
  void expect(const ProcessResult& result, int code, const Arguments& words) const {
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_EQ(result.out, "");
    for (const std::string& word : words) {
      EXPECT_NE(result.err.find(word), std::string::npos) << "\"" << word << "\" is not in:\n"
                                                          << result.err;
    }
  }
  /// Nothing but what was there before: no output, journal, lock or temporary file.
  void expect_no_traces() const {
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      const std::string name = entry.path().filename();
      EXPECT_TRUE(name.find("out") == std::string::npos) << name;
    }
  }
};

TEST_F(ErrorsTest, MissingInputFile) {
  fs::remove(input());
  expect(caravan(run_arguments("out.jsonl")), 66, {input(), "no such file"});
  expect_no_traces();
}

TEST_F(ErrorsTest, EveryMissingInputIsNamed) {
  expect(caravan({"run", "--model", model(), "--input", folder_.file("x.jsonl"), "--input",
                  folder_.file("y.txt"), "--output", folder_.file("out.jsonl")}),
         66, {"x.jsonl: no such file", "y.txt: no such file"});
}

TEST_F(ErrorsTest, PipesAreNotWaitedFor) {
  const std::string pipe = folder_.file("pipe.jsonl");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect(caravan({"run", "--model", model(), "--input", pipe, "--output", folder_.file("o.jsonl")}),
         64, {"pipe.jsonl", "--input -"});
  expect(caravan({"run", "--model", pipe, "--prompt", "Hi"}), 66, {"pipe.jsonl", "pipe"});
}

TEST_F(ErrorsTest, ASignalWhileStandardInputIsReadStopsTheRun) {
  const std::string pipe = folder_.file("in.pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int writer = ::open(pipe.c_str(), O_RDWR | O_CLOEXEC);  // never says that it is the end
  ASSERT_GE(writer, 0);
  ProcessOptions options;
  options.environment = launch_environment();
  const std::string command = "exec \"$0\" run --model \"$1\" --input - --output \"$2\" < \"$3\"";
  Process process(
      {"/bin/sh", "-c", command, CARAVAN_PROGRAM, model(), folder_.file("out.jsonl"), pipe},
      options);
  const std::string descriptors = "/proc/" + std::to_string(process.pid()) + "/fd";
  const auto reads = [&] {  // the file that keeps the input is open and has no name
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(descriptors, error)) {
      const std::string target = fs::read_symlink(entry.path(), error).string();
      if (target.find(".caravan-stdin-") != std::string::npos) return target.ends_with("(deleted)");
    }
    return false;
  };
  ASSERT_TRUE(wait_until(reads, 60));
  const auto before = std::chrono::steady_clock::now();
  process.signal(SIGTERM);
  const ProcessResult result = process.wait();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - before;
  ::close(writer);
  expect(result, 75, {"standard input", "run the same command again"});
  EXPECT_LT(taken.count(), 5) << "it must be about a second; the machine may be busy";
  fs::remove(pipe);
  expect_no_traces();
}

// Otherwise a pipe of the MPI library gets the number of standard input and is read for ever.
TEST_F(ErrorsTest, ClosedStandardInputIsAnEmptyOne) {
  ProcessOptions options;
  options.environment = launch_environment();
  options.deadline_seconds = 60;
  const std::string output = folder_.file("out.jsonl");
  const auto closed = [&](const std::string& arguments) {
    return run_process(
        {"/bin/sh", "-c", "exec \"$0\" " + arguments + " <&-", CARAVAN_PROGRAM, model(), output},
        options);
  };
  expect(closed("run --model \"$1\" --input - --output \"$2\""), 65, {"standard input is closed"});
  expect(closed("tokenize --model \"$1\""), 65, {"standard input is closed"});
  expect_no_traces();
  const ProcessResult prompt = closed("run --model \"$1\" --prompt Hi --max-tokens 2 2>&-");
  EXPECT_EQ(prompt.code, 0);
  EXPECT_FALSE(prompt.out.empty());
}

TEST_F(ErrorsTest, UnknownVariablesSuggestTheNearest) {
  ProcessOptions options;
  options.environment["CARAVAN_TEMPRATURE"] = "0";
  expect(caravan(run_arguments("out.jsonl"), options), 64,
         {"CARAVAN_TEMPRATURE", "did you mean CARAVAN_TEMPERATURE?"});
}

TEST_F(ErrorsTest, WrongModelPath) {
  expect(caravan({"run", "--model", folder_.file("none.h5"), "--prompt", "Hi"}), 66,
         {folder_.file("none.h5")});
}

TEST_F(ErrorsTest, FolderInsteadOfModelFile) {
  expect(caravan({"run", "--model", folder_.path(), "--prompt", "Hi"}), 66,
         {folder_.path(), "folder"});
}

TEST_F(ErrorsTest, NotACaravanFile) {
  expect(caravan({"run", "--model", input(), "--prompt", "Hi"}), 78, {input()});
}

TEST_F(ErrorsTest, TruncatedModelFile) {
  const std::string copy = folder_.file("short.h5");
  fs::copy_file(model(), copy);
  fs::resize_file(copy, fs::file_size(copy) / 2);
  expect(caravan({"run", "--model", copy, "--prompt", "Hi"}), 78, {copy});
}

TEST_F(ErrorsTest, DamagedWeightsAreFoundWhileReading) {
  const std::string copy = folder_.file("bad.h5");
  fs::copy_file(model(), copy);
  std::string bytes = read_whole(copy);
  bytes[bytes.size() * 3 / 4] = static_cast<char>(bytes[bytes.size() * 3 / 4] ^ 0x10);
  folder_.write("bad.h5", bytes);
  const ProcessResult verified = caravan({"verify", copy});
  expect(verified, 78, {copy});
  expect(caravan({"run", "--model", copy, "--prompt", "Hi"}), 78, {"checksum"});
  for (const int ranks : {2, 3}) {  // found by one rank, reported by all
    const ProcessResult result =
        caravan_on(ranks, {"run", "--model", copy, "--prompt", "Hi", "--max-tokens", "2"});
    EXPECT_EQ(result.code, 78) << result.err;
    EXPECT_NE(result.err.find("checksum"), std::string::npos) << result.err;
  }
}

TEST_F(ErrorsTest, WeightsThatAreNoNumbersAreAFaultOfTheModel) {
  const std::string copy = folder_.file("nan.h5");
  std::string bytes = read_whole(model());
  bytes.replace(bytes.size() * 3 / 4, 64, std::string(64, '\xff'));
  folder_.write("nan.h5", bytes);
  expect(caravan({"run", "--model", copy, "--no-verify", "--prompt", "Hi"}), 78, {"checkpoint"});
}

TEST_F(ErrorsTest, TextsThatAreNoUtf8AreNamedByTheirOption) {
  for (const char* option : {"--prompt", "--system", "--stop", "--date", "--model-name"}) {
    Arguments arguments = {"run", "--model", model()};
    if (std::string(option) != "--prompt") arguments.insert(arguments.end(), {"--prompt", "Hi"});
    arguments.insert(arguments.end(), {option, "a\xff"});
    expect(caravan(arguments), 65,
           {std::string(option) + ": not valid UTF-8: byte 0xff at byte 1"});
  }
}

TEST_F(ErrorsTest, APlanOfTooManyRanksIsRefusedAtOnce) {
  expect(caravan({"plan", "--model", model(), "--ranks", "5000"}), 64, {"at most 4096", "5000"});
}

TEST_F(ErrorsTest, AValueOfAConfigurationFileIsNamedByFileAndOption) {
  const std::string config = folder_.write("run.ini", "stop = \"abc\n");
  expect(caravan(run_arguments("out.jsonl", {"--config", config})), 64,
         {config + ": stop", "JSON"});
}

TEST_F(ErrorsTest, NamesOfModelsCannotMoveTheCursor) {
  const std::string copy = folder_.file("named.h5");
  const ProcessResult converted =
      caravan({"convert", std::string(CARAVAN_TEST_DATA) + "/checkpoints/tiny-llama31", copy,
               "--name", "a\x1b[31mb"});
  ASSERT_EQ(converted.code, 0) << converted.err;
  const ProcessResult shown = caravan({"inspect", copy});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_EQ(shown.out.find('\x1b'), std::string::npos);
  EXPECT_NE(shown.out.find("[31mb"), std::string::npos) << shown.out;
}

TEST_F(ErrorsTest, SourcesThatAreNoJsonAreSaidInOurWords) {
  fs::copy(std::string(CARAVAN_TEST_DATA) + "/checkpoints/tiny-llama31", folder_.file("hf"));
  folder_.write("hf/config.json", "{\"model_type\": llama}");
  const ProcessResult result = caravan({"convert", folder_.file("hf"), folder_.file("out.h5")});
  expect(result, 65, {"config.json", "not valid JSON at column 16: syntax error"});
  EXPECT_EQ(result.err.find("json.exception"), std::string::npos) << result.err;
  expect_no_traces();
}

TEST_F(ErrorsTest, BadJsonOnLineSeven) {
  std::string lines;
  for (int i = 1; i <= 8; ++i) {
    lines += i == 7 ? "{\"custom_id\": oops\n" : chat_request("r" + std::to_string(i), "Hi");
  }
  folder_.write("prompts.jsonl", lines);
  expect(caravan(run_arguments("out.jsonl")), 65,
         {"prompts.jsonl:7", "not valid JSON", "1 of 8 records", "--on-invalid=record"});
  expect_no_traces();
}

TEST_F(ErrorsTest, UnknownOptionSuggestsTheNearest) {
  expect(caravan(run_arguments("out.jsonl", {"--temprature", "0"})), 64,
         {"--temprature", "did you mean --temperature?"});
  expect(caravan({"rnu"}), 64, {"did you mean run?"});
  expect(caravan({}), 64, {"caravan --help"});
  const std::string config = folder_.write("a.ini", "max_tokens = 3\n");
  expect(caravan({"run", "--config", config}), 64,
         {config, "max_tokens", "did you mean max-tokens?"});
}

TEST_F(ErrorsTest, OptionsOfOtherFormsAreExplained) {
  expect(caravan({"run", "-m", model(), "-o", "out.jsonl"}), 64,
         {"unknown option -m", "two dashes"});
  expect(caravan({"run", "--json"}), 64, {"--json is not an option of run, but of inspect"});
  expect(caravan({"run", "--ranks", "2"}), 64, {"--ranks is not an option of run, but of plan"});
  expect(caravan({"run", "--overwrit=true"}), 64, {"unknown option --overwrit;", "--overwrite"});
  expect(caravan({"tokenize", "--model", model(), "-5"}), 64, {"unknown option -5", "behind --"});
  EXPECT_EQ(caravan({"tokenize", "--model", model(), "--", "-5"}).code, 0);
}

TEST_F(ErrorsTest, BadOptionValue) {
  expect(caravan(run_arguments("out.jsonl", {"--top-p", "2"})), 64,
         {"--top-p", "between", "\"2\""});
  ProcessOptions options;
  options.environment["CARAVAN_TEMPERATURE"] = "hot";
  expect(caravan(run_arguments("out.jsonl"), options), 64, {"CARAVAN_TEMPERATURE", "hot"});
}

TEST_F(ErrorsTest, MissingOptionsAreListedTogether) {
  expect(caravan({"run"}), 64, {"--model", "--input"});
}

TEST_F(ErrorsTest, OutputExists) {
  folder_.write("out.jsonl", "precious\n");
  expect(caravan(run_arguments("out.jsonl")), 73, {"out.jsonl exists", "--overwrite"});
  EXPECT_EQ(read_whole(folder_.file("out.jsonl")), "precious\n");
}

TEST_F(ErrorsTest, InputEqualsOutput) {
  const std::string before = read_whole(input());
  expect(caravan(run_arguments("prompts.jsonl", {"--overwrite"})), 64, {"same file"});
  fs::create_symlink(input(), folder_.file("link.jsonl"));
  expect(caravan(run_arguments("link.jsonl", {"--overwrite"})), 64, {"same file"});
  EXPECT_EQ(read_whole(input()), before);
}

TEST_F(ErrorsTest, OutputFolderDoesNotExist) {
  expect(caravan(run_arguments("none/out.jsonl")), 73, {"there is no folder"});
}

TEST_F(ErrorsTest, AllFaultsOfASetUpAreReportedTogether) {
  expect(caravan({"run", "--model", folder_.file("none.h5"), "--input", folder_.file("none.jsonl"),
                  "--output", folder_.file("none/out.jsonl")}),
         66, {"none.h5", "none.jsonl: no such file", "there is no folder"});
}

TEST_F(ErrorsTest, NoSpaceKeepsWhatIsDoneAndContinues) {
  // Long ids make a long journal without much work; the limit leaves room for what MPI writes.
  std::string lines;
  const std::string long_text(4000, 'x');
  for (int i = 0; i < 6000; ++i) {
    lines += "{\"custom_id\":\"" + long_text + std::to_string(i) + "\"}\n";
  }
  folder_.write("prompts.jsonl", lines);
  const Arguments run = run_arguments("out.jsonl", {"--on-invalid", "record"});
  ProcessOptions options;
  options.max_file_bytes = 16U << 20;
  expect(caravan(run, options), 74,
         {"out.jsonl.part", "File too large", "run the same command again"});
  EXPECT_FALSE(fs::exists(folder_.file("out.jsonl")));
  EXPECT_FALSE(fs::exists(folder_.file("out.jsonl.lock")));
  const ProcessResult again = caravan(run);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.err.find("continuing"), std::string::npos) << again.err;
  const auto answers = read_lines(folder_.file("out.jsonl"));
  ASSERT_EQ(answers.size(), 6000U);
  EXPECT_EQ(answers[5999]["custom_id"], long_text + "5999");
}

TEST_F(ErrorsTest, TensorParallelMustBeTheLaunchSize) {
  expect(caravan(run_arguments("out.jsonl", {"--tensor-parallel", "2"})), 64,
         {"--tensor-parallel 2 with 1 rank"});
  const ProcessResult two = caravan_on(2, run_arguments("out.jsonl", {"--tensor-parallel", "3"}));
  EXPECT_EQ(two.code, 64) << two.err;
}

TEST_F(ErrorsTest, UnconnectedRanksAreRefused) {
  ProcessOptions options;
  options.environment["SLURM_STEP_NUM_TASKS"] = "4";  // srun with the wrong --mpi starts singletons
  expect(caravan(run_arguments("out.jsonl"), options), 69, {"--mpi=pmix"});
  expect_no_traces();
}

TEST_F(ErrorsTest, PlanOfAModelThatDoesNotFitStillSaysWhereItWould) {
  const ProcessResult result =
      caravan({"plan", "--model", model(), "--node-memory", "1M", "--ranks", "2"});
  EXPECT_EQ(result.code, 78) << result.err;
  EXPECT_NE(result.err.find("rank 0 needs"), std::string::npos) << result.err;
  EXPECT_NE(result.out.find("What one rank needs, by the number of ranks"), std::string::npos)
      << result.out;
  EXPECT_EQ(result.out.find("The run can start"), std::string::npos);
}

TEST_F(ErrorsTest, AKvCacheOfLessThanABlockNamesTheBytesOfOne) {
  const ProcessResult refused =
      caravan({"run", "--model", model(), "--prompt", "Hi", "--kv-memory", "1"});
  expect(refused, 78, {"--kv-memory 1 is less than one block of 16 tokens"});
  const std::string words = "give --kv-memory ";
  const std::size_t begin = refused.err.find(words);
  ASSERT_NE(begin, std::string::npos) << refused.err;
  const std::string bytes = std::to_string(std::stoll(refused.err.substr(begin + words.size())));
  const ProcessResult taken = caravan({"run", "--model", model(), "--prompt", "Hi", "--max-tokens",
                                       "2", "--kv-memory", bytes, "--endpoint", "completion"});
  EXPECT_EQ(taken.code, 0) << taken.err;
}

TEST_F(ErrorsTest, MemoryThatDoesNotSuffice) {
  expect(caravan(run_arguments("out.jsonl", {"--kv-memory", "100000G"})), 78,
         {"KV cache", "--kv-memory"});
}

TEST_F(ErrorsTest, EveryRankEndsWithTheSameCodeAndOneMessage) {
  fs::remove(input());
  const ProcessResult result = caravan_on(3, run_arguments("out.jsonl"));
  EXPECT_EQ(result.code, 66) << result.err;
  const auto first = result.err.find("caravan: error:");
  ASSERT_NE(first, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("caravan: error:", first + 1), std::string::npos) << result.err;
}

TEST_F(ErrorsTest, DeviceThatCannotBeUsed) {
  const Arguments asked = {"--model", model(), "--prompt", "Hi", "--device", "cuda"};
  for (const char* command : {"run", "plan"}) {
    Arguments arguments = {command};
    arguments.insert(arguments.end(), asked.begin(), asked.end());
    if (arguments[0] == "plan") arguments.erase(arguments.begin() + 3, arguments.begin() + 5);
    expect(caravan(arguments), 69, {"--device cuda: "});
  }
  Arguments on_ranks = {"run"};
  on_ranks.insert(on_ranks.end(), asked.begin(), asked.end());
  const ProcessResult result = caravan_on(3, on_ranks);
  EXPECT_EQ(result.code, 69) << result.err;
  const auto first = result.err.find("--device cuda: ");
  ASSERT_NE(first, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("--device cuda: ", first + 1), std::string::npos) << result.err;
}

TEST_F(ErrorsTest, WrongNumbersOfArguments) {
  expect(caravan({"convert", "one"}), 64, {"SOURCE and MODEL.h5"});
  expect(caravan({"inspect"}), 64, {"one MODEL.h5"});
  expect(caravan({"verify", "a", "b"}), 64, {"one MODEL.h5"});
  expect(caravan({"run", "stray"}), 64, {"stray"});
}

TEST_F(ErrorsTest, InformationNeedsNothing) {
  const ProcessResult version = caravan({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.out.substr(0, 8), "caravan ");
  EXPECT_NE(version.out.find("CUDA  "), std::string::npos) << version.out;
  EXPECT_NE(version.out.find("libvips "), std::string::npos) << version.out;
  EXPECT_EQ(version.err, "");
  EXPECT_NE(caravan({"--help"}).out.find("tokenize"), std::string::npos);
  const std::string help = caravan({"help", "run"}).out;
  EXPECT_NE(help.find("--max-tokens"), std::string::npos);
  EXPECT_EQ(help, caravan({"run", "--help"}).out);
  EXPECT_EQ(caravan({"help", "nothing"}).code, 64);
}

TEST_F(ErrorsTest, LeftoverVariablesOfALauncherSilenceNothing) {
  ProcessOptions options;
  options.environment = {{"SLURM_PROCID", "1"}, {"PMI_RANK", "3"}};
  EXPECT_NE(caravan({"inspect", model()}, options).out, "");
  expect(caravan({"inspect", folder_.file("none.h5")}, options), 66, {"none.h5"});
  expect(caravan({"rnu"}, options), 64, {"did you mean run?"});
}

TEST_F(ErrorsTest, OneOfSeveralRanksConverts) {
  const ProcessResult result =
      caravan_on(2, {"convert", std::string(CARAVAN_TEST_DATA) + "/checkpoints/tiny-llama31",
                     folder_.file("twice.h5")});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.err.find("convert needs one process: rank 0 does it, rank 1 has nothing to do"),
            std::string::npos)
      << result.err;
  EXPECT_EQ(caravan({"verify", folder_.file("twice.h5")}).code, 0);
}

TEST_F(ErrorsTest, AnOpenEndedRecordThatTheCacheCannotHoldSaysWhatToDo) {
  folder_.write("prompts.jsonl", chat_request("a", "Hi"));
  const ProcessResult refused = caravan(run_arguments("out.jsonl", {"--kv-memory", "64K"}));
  expect(refused, 78, {"prompts.jsonl:1", "--max-tokens", "--kv-memory"});
  const std::string_view rest =
      std::string_view(refused.err).substr(refused.err.find("Use --kv-memory ") + 16);
  const std::string enough(rest.substr(0, rest.find(' ')));
  EXPECT_EQ(caravan({"plan", "--model", model(), "--input", input(), "--kv-memory", enough}).code,
            0)
      << enough;
  EXPECT_EQ(caravan({"plan", "--model", model(), "--input", input()}).code, 0)
      << "without the option there is room for one whole context";
}

TEST_F(ErrorsTest, StandardOutputThatIsFull) {
  const ProcessResult result =
      run_process({"/bin/sh", "-c", std::string(CARAVAN_PROGRAM) + " --help > /dev/full"});
  EXPECT_EQ(result.code, 74) << result.err;
}

}  // namespace
}  // namespace caravan::test
