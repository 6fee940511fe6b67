// What a run writes: the same bytes for any number of ranks and any company, in input order.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "system/program/program_rig.h"

namespace caravan::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Requests of every kind, one line each.
std::vector<std::string> mixed_requests() {
  return {
      chat_request("greedy", "Tell me something", {{"max_tokens", 12}, {"temperature", 0}}),
      chat_request("sampled", "Tell me something",
                   {{"max_tokens", 20}, {"n", 3}, {"ignore_eos", true}}),
      chat_request("seeded", "Once",
                   {{"max_tokens", 16},
                    {"seed", 5},
                    {"top_k", 50},
                    {"logprobs", true},
                    {"top_logprobs", 3},
                    {"ignore_eos", true}}),
      completion_request("two", {"one two", "three"},
                         {{"max_tokens", 6}, {"temperature", 0}, {"echo", true}, {"logprobs", 2}}),
      completion_request(
          "score", "a prompt to score",
          {{"max_tokens", 0}, {"echo", true}, {"logprobs", 0}, {"return_token_ids", true}}),
      completion_request("ids", json::array({1792, 5, 6, 7}),
                         {{"max_tokens", 9},
                          {"presence_penalty", 1.5},
                          {"repetition_penalty", 1.3},
                          {"min_p", 0.05}}),
      completion_request("long", std::string(300, 'x'), {{"max_tokens", 30}, {"ignore_eos", true}}),
      chat_request("open", "How does it end?"),
  };
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

std::map<std::string, std::string> lines_by_id(const std::string& path) {
  std::map<std::string, std::string> lines;
  std::istringstream text(read_whole(path));
  for (std::string line; std::getline(text, line);) {
    lines[json::parse(line)["custom_id"]] = line;
  }
  return lines;
}

class RunTest : public ProgramTest {};

TEST_F(RunTest, AnyNumberOfRanksGivesTheSameBytes) {
  folder_.write("prompts.jsonl", joined(mixed_requests()));
  const ProcessResult alone = caravan(run_arguments("alone.jsonl"));
  ASSERT_EQ(alone.code, 0) << alone.err;
  EXPECT_EQ(alone.out, "");
  const std::string expected = read_whole(folder_.file("alone.jsonl"));
  for (const int ranks : {1, 2, 3, 4}) {
    const std::string name = "ranks" + std::to_string(ranks) + ".jsonl";
    const ProcessResult result = caravan_on(ranks, run_arguments(name));
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(read_whole(folder_.file(name)), expected) << ranks << " ranks";
  }
}

TEST_F(RunTest, CompanyOrderAndCuttingChangeNothing) {
  std::vector<std::string> requests = mixed_requests();
  folder_.write("prompts.jsonl", joined(requests));
  ASSERT_EQ(caravan(run_arguments("a.jsonl")).code, 0);
  const auto expected = lines_by_id(folder_.file("a.jsonl"));
  ASSERT_EQ(expected.size(), requests.size());
  std::reverse(requests.begin(), requests.end());
  folder_.write("prompts.jsonl", joined(requests));
  const std::vector<Arguments> variants = {
      {"--threads", "1"},
      {"--threads", "2", "--isa", "generic"},
      {"--max-sequences", "1"},
      {"--max-sequences", "3", "--max-step-tokens", "7"},
      {"--kv-memory", "450K", "--max-step-tokens", "64"},
  };
  for (Arguments more : variants) {
    more.emplace_back("--overwrite");
    const ProcessResult result = caravan(run_arguments("b.jsonl", more));
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(lines_by_id(folder_.file("b.jsonl")), expected) << more[0] << " " << more[1];
  }
  for (const std::string& request : requests) {  // each alone
    folder_.write("prompts.jsonl", request);
    ASSERT_EQ(caravan(run_arguments("b.jsonl", {"--overwrite"})).code, 0);
    const std::string id = json::parse(request)["custom_id"];
    EXPECT_EQ(lines_by_id(folder_.file("b.jsonl")).at(id), expected.at(id));
  }
}

TEST_F(RunTest, AnswersStandInInputOrderWithTheirNumbers) {
  folder_.write("prompts.jsonl", joined(mixed_requests()));
  const ProcessResult result = caravan_on(2, run_arguments("out.jsonl"));
  ASSERT_EQ(result.code, 0) << result.err;
  const auto answers = read_lines(folder_.file("out.jsonl"));
  const auto requests = mixed_requests();
  ASSERT_EQ(answers.size(), requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(answers[i]["custom_id"], json::parse(requests[i])["custom_id"]);
    EXPECT_EQ(answers[i]["error"], nullptr);
  }
  EXPECT_EQ(answers[1]["response"]["body"]["choices"].size(), 3U);
  EXPECT_EQ(answers[1]["response"]["body"]["usage"]["completion_tokens"], 60);
  const json& score = answers[4]["response"]["body"]["choices"][0];
  EXPECT_EQ(score["text"], "a prompt to score");
  EXPECT_EQ(score["token_ids"], json::array());
  EXPECT_EQ(score["logprobs"]["tokens"].size(), score["prompt_token_ids"].size());
  const json& seeded = answers[2]["response"]["body"]["choices"][0]["logprobs"]["content"];
  EXPECT_EQ(seeded.size(), 16U);
  const json manifest = json::parse(read_whole(folder_.file("out.manifest.json")));
  EXPECT_EQ(manifest["counts"]["done"], requests.size());
  EXPECT_EQ(manifest["launch"]["ranks"].size(), 2U);
  EXPECT_EQ(manifest["exit"]["code"], 0);
  for (const char* gone : {"out.jsonl.part", "out.jsonl.lock"}) {
    EXPECT_FALSE(fs::exists(folder_.file(gone))) << gone;
  }
}

TEST_F(RunTest, FaultyRecordsGetErrorLinesWhenAsked) {
  folder_.write("prompts.jsonl", chat_request("good", "Hi", {{"max_tokens", 2}}) + "not json\n" +
                                     chat_request("tools", "Hi", {{"functions", {1}}}) +
                                     completion_request("long", std::string(3000, 'q')) +
                                     chat_request("good", "again", {{"max_tokens", 2}}));
  const ProcessResult result =
      caravan(run_arguments("out.jsonl", {"--on-invalid", "record", "--fail-on-error"}));
  EXPECT_EQ(result.code, 3) << result.err;
  const auto lines = read_lines(folder_.file("out.jsonl"));
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_EQ(lines[0]["error"], nullptr);
  EXPECT_EQ(lines[1]["error"]["code"], "invalid_json");
  EXPECT_EQ(lines[1]["custom_id"], "prompts.jsonl:2");
  EXPECT_EQ(lines[2]["error"]["param"], "functions");
  EXPECT_EQ(lines[3]["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(lines[4]["error"]["code"], "duplicate_custom_id");
}

TEST_F(RunTest, EmptyInputGivesEmptyOutput) {
  folder_.write("prompts.jsonl", "\n");
  const ProcessResult result = caravan_on(2, run_arguments("out.jsonl"));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.err.find("warning: the input has no records"), std::string::npos) << result.err;
  EXPECT_EQ(read_whole(folder_.file("out.jsonl")), "");
}

TEST_F(RunTest, TextYamlAndStandardInput) {
  const std::string text = folder_.write("p.txt", "First prompt\n\nSecond prompt\n");
  const std::string yaml =
      folder_.write("q.yaml", "prompt:\n  system: Be brief\n  user:\n    text: Third\n");
  ProcessOptions options;
  options.standard_input = chat_request("piped", "Fourth", {{"max_tokens", 2}});
  const ProcessResult result =
      caravan({"run", "--model", model(), "--input", text, "--input", yaml, "--input", "-",
               "--output", folder_.file("out.jsonl"), "--max-tokens", "3"},
              options);
  ASSERT_EQ(result.code, 0) << result.err;
  const auto lines = read_lines(folder_.file("out.jsonl"));
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0]["custom_id"], "p.txt:1");
  EXPECT_EQ(lines[1]["custom_id"], "p.txt:3");
  EXPECT_EQ(lines[2]["custom_id"], "q.yaml:2");
  EXPECT_EQ(lines[3]["custom_id"], "piped");
  EXPECT_EQ(lines[0]["response"]["body"]["object"], "chat.completion");
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_.path())) {
    names.insert(entry.path().filename());
  }
  EXPECT_EQ(names, (std::set<std::string>{"out.jsonl", "out.manifest.json", "p.txt", "q.yaml"}));
}

TEST_F(RunTest, MoreRanksThanHeadsGiveTheSameBytes) {
  folder_.write("prompts.jsonl",
                completion_request("a", "Once upon a time", {{"max_tokens", 6}, {"logprobs", 1}}));
  ASSERT_EQ(caravan_on(1, run_arguments("one.jsonl", {"--threads", "1"})).code, 0);
  // The model has 4 query heads: some ranks have none.
  const ProcessResult result = caravan_on(6, run_arguments("six.jsonl", {"--threads", "1"}));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(read_whole(folder_.file("six.jsonl")), read_whole(folder_.file("one.jsonl")));
}

TEST_F(RunTest, StandardInputMayBeOfAnyKind) {
  const auto ids_of = [this](const std::string& text, const Arguments& more) {
    ProcessOptions options;
    options.standard_input = text;
    Arguments run = {"run",
                     "--model",
                     model(),
                     "--input",
                     "-",
                     "--output",
                     folder_.file("out.jsonl"),
                     "--overwrite",
                     "--max-tokens",
                     "1"};
    run.insert(run.end(), more.begin(), more.end());
    const ProcessResult result = caravan(run, options);
    EXPECT_EQ(result.code, 0) << result.err;
    std::vector<std::string> ids;
    for (const auto& line : read_lines(folder_.file("out.jsonl"))) {
      ids.push_back(line["custom_id"]);
    }
    return ids;
  };
  using Ids = std::vector<std::string>;
  const std::string yaml = "- user: |\n    one\n    two\n- user: b\n";
  EXPECT_EQ(ids_of(yaml, {}), (Ids{"stdin:1", "stdin:4"}));
  EXPECT_EQ(ids_of(yaml, {"--input-format", "txt"}),
            (Ids{"stdin:1", "stdin:2", "stdin:3", "stdin:4"}));
  EXPECT_EQ(ids_of("{hello} world\nuser: x\n", {}), (Ids{"stdin:1", "stdin:2"}));
  EXPECT_EQ(ids_of(completion_request("x", "Hi", json::object()), {}), Ids{"x"});
  EXPECT_EQ(ids_of("user: a\n", {"--input-format", "yaml"}), Ids{"stdin:1"});
}

TEST_F(RunTest, FaultsOfEveryInputAreListedOrAnswered) {
  const std::string yaml =
      folder_.write("q.yaml", "- user: Hi\n- usr: Hi\n- {user: {txt: a}, sytem: b}\n- user: Ho\n");
  folder_.write("prompts.jsonl", chat_request("bad", "Hi", {{"max_tokens", -1}, {"n", 0}}));
  const Arguments run = run_arguments("out.jsonl", {"--input", yaml, "--max-tokens", "2"});
  const ProcessResult refused = caravan(run);
  EXPECT_EQ(refused.code, 65) << refused.err;
  for (const char* words : {"3 of 5 records", "prompts.jsonl:1: n must be", "; max_tokens must be",
                            "q.yaml:2: unknown key \"usr\"", "; user: is missing",
                            "q.yaml:3: user.txt: expected", "; unknown key \"sytem\""}) {
    EXPECT_NE(refused.err.find(words), std::string::npos) << words << "\n" << refused.err;
  }
  Arguments answering = run;
  answering.insert(answering.end(), {"--on-invalid", "record"});
  const ProcessResult answered = caravan(answering);
  ASSERT_EQ(answered.code, 0) << answered.err;
  const auto lines = read_lines(folder_.file("out.jsonl"));
  ASSERT_EQ(lines.size(), 5U);
  const std::vector<bool> faulty = {true, false, true, true, false};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["error"].is_object(), faulty[i]) << lines[i];
  }
  EXPECT_EQ(lines[2]["custom_id"], "q.yaml:2");

  // Where its records begin is unknown, so none can be answered; the other faults are listed too.
  folder_.write("q.yaml", "- user: [\n");
  const ProcessResult unreadable = caravan(answering);
  EXPECT_EQ(unreadable.code, 73) << "the output exists";
  answering.emplace_back("--overwrite");
  const ProcessResult both = caravan(answering);
  EXPECT_EQ(both.code, 65) << both.err;
  for (const char* words : {"q.yaml:2: not valid YAML", "prompts.jsonl:1: n must be"}) {
    EXPECT_NE(both.err.find(words), std::string::npos) << words << "\n" << both.err;
  }
}

TEST_F(RunTest, RecordsThatCanNeverFitTheCacheAreNamedBeforeTheRun) {
  folder_.write("prompts.jsonl", completion_request("small", "Hi", {{"max_tokens", 4}}) +
                                     completion_request("large", "Hi", {{"max_tokens", 400}}));
  const ProcessResult result = caravan(run_arguments("out.jsonl", {"--kv-memory", "100K"}));
  EXPECT_EQ(result.code, 78) << result.err;
  EXPECT_NE(result.err.find("prompts.jsonl:2: the prompt has 3 tokens"), std::string::npos)
      << result.err;
  EXPECT_NE(result.err.find("KV cache"), std::string::npos) << result.err;
}

TEST_F(RunTest, AnAnswerDoesNotDependOnTheMemoryOfTheMachine) {
  folder_.write("prompts.jsonl", "{\n" + completion_request("large", "Hi", {{"max_tokens", 400}}));
  const Arguments run = run_arguments("out.jsonl", {"--on-invalid", "record"});
  Arguments small = run;
  small.insert(small.end(), {"--kv-memory", "100K"});
  const ProcessResult refused = caravan(small);
  EXPECT_EQ(refused.code, 78) << refused.err;
  EXPECT_FALSE(fs::exists(folder_.file("out.jsonl.part")));
  EXPECT_EQ(caravan({"run", "--model", model(), "--prompt", "Hi", "--max-tokens", "400",
                     "--kv-memory", "100K"})
                .code,
            78);
  const ProcessResult result = caravan(run);
  EXPECT_EQ(result.code, 0) << result.err;
  const auto lines = read_lines(folder_.file("out.jsonl"));
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["error"]["code"], "invalid_json");
  EXPECT_EQ(lines[1]["error"], nullptr);
}

TEST_F(RunTest, RatesAreOfWhatWasDecoded) {
  folder_.write("prompts.jsonl", completion_request("a", "Hi", {{"max_tokens", 1}, {"n", 40}}));
  const ProcessResult one = caravan(run_arguments("one.jsonl"));
  EXPECT_NE(one.err.find("decode 0 tokens in 0.0 s (- tokens/s)"), std::string::npos) << one.err;
  folder_.write("prompts.jsonl",
                completion_request("a", "Hi", {{"max_tokens", 3}, {"n", 4}, {"ignore_eos", true}}));
  const ProcessResult three = caravan(run_arguments("three.jsonl"));
  EXPECT_NE(three.err.find("decode 8 tokens in "), std::string::npos) << three.err;
}

TEST_F(RunTest, MoreThreadsThanCpusAreNotStarted) {
  const ProcessResult result = caravan(
      {"run", "--model", model(), "--prompt", "Hi", "--max-tokens", "2", "--threads", "1000"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.err.find("--threads 1000: this rank may use"), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("1000 thread(s) for each rank"), std::string::npos) << result.err;
}

TEST_F(RunTest, OnePromptAnswersOnStandardOutput) {
  const Arguments run = {"run",          "--model", model(),      "--prompt",  "Hello",
                         "--max-tokens", "8",       "--endpoint", "completion"};
  const ProcessResult alone = caravan(run);
  ASSERT_EQ(alone.code, 0) << alone.err;
  EXPECT_TRUE(alone.out.ends_with("\n"));
  EXPECT_GT(alone.out.size(), 1U);
  const ProcessResult three = caravan_on(3, run);
  ASSERT_EQ(three.code, 0) << three.err;
  EXPECT_EQ(three.out, alone.out);
}

TEST_F(RunTest, ConfigFileEnvironmentAndCommandLine) {
  folder_.write("prompts.jsonl", completion_request("a", "Hi", {{"ignore_eos", true}}));
  const std::string config =
      folder_.write("a.ini", "model = " + model() + "\nmax-tokens = 3\ntemperature = 0\n");
  const auto tokens = [&](const Arguments& more, const ProcessOptions& options) {
    Arguments run = {
        "run",        "--config", config, "--input", input(), "--output", folder_.file("out.jsonl"),
        "--overwrite"};
    run.insert(run.end(), more.begin(), more.end());
    const ProcessResult result = caravan(run, options);
    EXPECT_EQ(result.code, 0) << result.err;
    return read_lines(
               folder_.file("out.jsonl"))[0]["response"]["body"]["usage"]["completion_tokens"]
        .get<int>();
  };
  ProcessOptions options;
  EXPECT_EQ(tokens({}, options), 3);
  options.environment["CARAVAN_MAX_TOKENS"] = "4";
  EXPECT_EQ(tokens({}, options), 4);
  EXPECT_EQ(tokens({"--max-tokens", "5"}, options), 5);
}

TEST_F(RunTest, PlanChecksWithoutRunning) {
  folder_.write("prompts.jsonl", joined(mixed_requests()));
  Arguments plan = run_arguments("out.jsonl", {"--ranks", "3"});
  plan[0] = "plan";
  const ProcessResult result = caravan(plan);
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* words : {"8 records", "query heads", "KV cache", "The run can start"}) {
    EXPECT_NE(result.out.find(words), std::string::npos) << words << "\n" << result.out;
  }
  EXPECT_FALSE(fs::exists(folder_.file("out.jsonl")));
  folder_.write("prompts.jsonl", "{\n");
  EXPECT_EQ(caravan(plan).code, 65);
}

TEST_F(RunTest, TokenizeShowsWhatTheModelSees) {
  const ProcessResult text = caravan({"tokenize", "--model", model(), "Hello <|eot_id|>"});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("special"), std::string::npos);  // BOS
  const auto list =
      text.out.substr(text.out.find('['), text.out.find(']') - text.out.find('[') + 1);
  const json ids = json::parse(list);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), json(1801)), 0);  // user text is no control token
  const ProcessResult back = caravan({"tokenize", "--model", model(), "--ids", list});
  EXPECT_EQ(back.out, "<|begin_of_text|>Hello <|eot_id|>\n") << back.err;
  const ProcessResult chat = caravan({"tokenize", "--model", model(), "--chat", "Hi"});
  EXPECT_NE(chat.out.find("<|start_header_id|>"), std::string::npos);
  ProcessOptions options;
  options.standard_input = "Hello <|eot_id|>";
  EXPECT_EQ(caravan({"tokenize", "--model", model()}, options).out, text.out);
  EXPECT_EQ(caravan({"tokenize", "--model", model(), "--ids", "99999"}).code, 65);
}

}  // namespace
}  // namespace caravan::test
